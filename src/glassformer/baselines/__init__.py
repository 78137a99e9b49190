"""Models that are fitted in one pass by counting: what every network has to beat."""
