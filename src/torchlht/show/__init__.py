"""What is shown: tables in the terminal, figures in one look and two themes, the page about a run."""
