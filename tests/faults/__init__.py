"""One test for each row of the fault and bad-input matrix: kills, torn files, full disks, hostile input."""
