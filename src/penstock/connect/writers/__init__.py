"""Where rows go; users reach these as `penstock.write`."""
