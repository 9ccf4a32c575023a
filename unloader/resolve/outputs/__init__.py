"""What of a run is one output's: columns, transforms, names of files, directories, keys."""
