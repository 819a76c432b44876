"""Tools that look after this repository; nothing of them is installed."""
