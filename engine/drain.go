package engine

// rest answers those who drain, once nothing is left to do.
func (v *evaluator) rest() {
	if !v.draining || len(v.events) > 0 || len(v.dues) > 0 || len(v.inFlight) > 0 || v.halted() {
		return
	}
	for _, done := range v.drained {
		done <- nil
	}
	v.drained = nil
}

// drain gives up what is due and answers when the rest is committed.
func (v *evaluator) drain(done report) {
	v.draining = true
	v.results.close()
	v.takeResults()
	v.status.drain()
	v.drained = append(v.drained, done)
	for _, it := range v.dues {
		it.due.handed.refuse()
	}
	v.dues = nil
	for _, l := range v.lagging { // what was read for them, and is not applied, is read again
		l.dismiss()
		l.queue, l.given = nil, map[string]uint64{}
	}
}
