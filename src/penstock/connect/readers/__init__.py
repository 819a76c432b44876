"""Where rows come from; users reach these as `penstock.read`."""
