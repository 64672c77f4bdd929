"""A copy parts what is written from what backward needs: at the alias, at the save, before the write."""
