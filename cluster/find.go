package cluster

// Find is the search of [Log.Find] among the messages from first to last. It halves the range, because LSNs
// do not fall: only the parts of a record that its owner left unfinished have an LSN that is used again, by
// the next owner and right behind them.
func Find(first uint64, last Last, lsn uint64, message func(seq uint64) (Message, error)) (Mark, error) {
	if last.Seq == 0 {
		return Mark{LSN: lsn}, nil
	}
	// No message up to low has a later LSN. The one at high has, or there is none.
	low, high := first-1, last.Seq+1
	var found Message
	for low+1 < high {
		middle := low + (high-low)/2
		m, err := message(middle)
		if err != nil {
			return Mark{}, err
		}
		if m.LSN > lsn {
			high = middle
		} else {
			low, found = middle, m
		}
	}
	switch {
	case low < first:
		return Mark{}, ErrTrimmed
	case found.LSN < lsn || found.Part < found.Parts:
		return Mark{}, ErrAbsent
	}
	return Mark{Seq: low, LSN: found.LSN, Epoch: found.Epoch, Sum: found.Sum, State: found.State}, nil
}
