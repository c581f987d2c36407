"""The page where labels are looked at, corrected and added: journal, state, queues, learning, server and page."""
