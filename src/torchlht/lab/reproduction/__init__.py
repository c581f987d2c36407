"""The paper again: every table and figure as data, run and put beside what the paper reports."""
