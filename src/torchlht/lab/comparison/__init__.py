"""Methods side by side: `contenders` names and tunes them, `grid` runs them, `results` writes the tables."""
