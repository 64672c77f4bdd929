"""What a run is seen to do: saved tensors, writes and backwards, as frozen records."""
