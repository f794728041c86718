package store

import "edda"

// About what the names and small fields of a value take as JSON.
const (
	sizeEvent  = 300
	sizeWork   = 350
	sizeReplay = 700
	sizeSmall  = 100 // of an output, a timer, an entry, a row
)

// Size is about how many bytes the change writes. It costs no encoding, so a
// batch can be closed in time: before the sum of [TransitionSize] passes [MaxChange].
func (c Change) Size() int {
	n := 0
	for i := range c.Encoded {
		n += c.Encoded[i].size
	}
	for i := range c.Transitions {
		n += TransitionSize(&c.Transitions[i])
	}
	for i := range c.Dead {
		n += deadSize(&c.Dead[i])
	}
	for _, cl := range c.Claims {
		n += 2*sizeSmall + len(cl.Result)
	}
	for i := range c.Work {
		n += sizeWork + len(c.Work[i].Payload)
	}
	for i := range c.Sent {
		n += sizeWork + len(c.Sent[i].Work.Payload)
	}
	for _, m := range c.Manifests {
		n += sizeSmall + len(m.Text)
	}
	for _, a := range c.Audits {
		n += 2*sizeSmall + len(a.Detail) + len(a.Reason)
	}
	removed := &c.Remove
	for i := range c.Replays {
		n += sizeReplay + len(c.Replays[i].Reason) + len(c.Replays[i].Error) + len(c.Replays[i].Summary)
	}
	rows := len(c.DropReplays) + len(removed.Instances) + len(removed.Forgotten) + len(removed.DeadLetters) + len(c.Checkpoints) + len(c.Positions) + len(c.DropPositions) + len(c.Schedules) + len(c.Delivered) + len(c.Marks) + len(c.Arm) + len(c.Disarm)
	return n + rows*sizeSmall
}

// TransitionSize is one transition's part in [Change.Size].
func TransitionSize(t *edda.Transition) int {
	n := eventSize(&t.Event) // in the history
	if t.Instance != nil {
		n += t.Instance.Size() + len(t.Instance.State)
	}
	for i := range t.Outputs {
		n += sizeSmall + len(t.Outputs[i].With)
	}
	for i := range t.Work {
		n += sizeWork + len(t.Work[i].Payload)
	}
	for i := range t.Parts {
		n += sizeSmall + len(t.Parts[i].Data)
	}
	for _, entry := range []*edda.Entry{t.Park, t.Hold} {
		if entry != nil {
			n += sizeSmall + eventSize(&entry.Event)
		}
	}
	if t.Dead != nil {
		n += deadSize(t.Dead)
	}
	return n + sizeSmall*(len(t.Arm)+len(t.Disarm))
}

func eventSize(e *edda.Event) int { return sizeEvent + len(e.Payload) + len(e.Error) }

func deadSize(d *edda.DeadLetter) int {
	const base64 = 4.0 / 3
	return sizeSmall + eventSize(&d.Event) + len(d.Error) + len(d.Source) + len(d.Inputs) + int(base64*float64(len(d.Raw)))
}
