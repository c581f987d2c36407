"""Methods side by side: `grid` runs them, `tuning` chooses options, `results` tables them."""
