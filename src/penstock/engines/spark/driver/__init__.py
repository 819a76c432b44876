"""What the driver does: plan epochs, submit jobs, commit."""
