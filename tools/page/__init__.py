"""The results page: a static folder of HTML that opens from disk, made from run folders."""
