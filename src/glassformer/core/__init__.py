"""Foundations used by every other package: errors, bounds, config, progress, i18n, folders."""
