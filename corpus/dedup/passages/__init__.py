"""What documents share in part: lines of their site and copied passages, cut out of them."""
