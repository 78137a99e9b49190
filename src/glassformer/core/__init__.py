"""What everything else stands on: errors, bounds, config, progress, language, folders."""
