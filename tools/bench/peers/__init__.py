"""The programs our filter is compared with, each a script that runs in an environment of their own and prints JSON."""
