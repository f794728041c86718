package store

import (
	"encoding/json"

	"edda"
)

// About what the names and small fields of a value take as JSON.
const (
	sizeInstance = 300
	sizeEvent    = 300
	sizeWork     = 350
	sizeStep     = 250
	sizeReplay   = 700
	sizeSmall    = 100 // of an output, a timer, an entry, a row
)

// Size is about how many bytes the change writes. It costs no encoding, so a
// batch can be closed in time: before the sum of [TransitionSize] passes [MaxChange].
func (c Change) Size() int {
	n := 0
	for i := range c.Transitions {
		n += TransitionSize(&c.Transitions[i])
	}
	for i := range c.Dead {
		n += deadSize(&c.Dead[i])
	}
	for _, cl := range c.Claims {
		n += 2*sizeSmall + len(cl.Result)
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
	rows := len(c.DropReplays) + len(removed.Instances) + len(removed.Forgotten) + len(removed.DeadLetters) + len(c.Checkpoints) + len(c.Positions) + len(c.Schedules) + len(c.Delivered) + len(c.Arm) + len(c.Disarm)
	return n + rows*sizeSmall
}

// TransitionSize is one transition's part in [Change.Size].
func TransitionSize(t *edda.Transition) int {
	n := eventSize(&t.Event) // in the history
	if t.Instance != nil {
		n += instanceSize(t.Instance) + len(t.Instance.State)
	}
	for i := range t.Outputs {
		n += sizeSmall + len(t.Outputs[i].With)
	}
	for i := range t.Work {
		n += sizeWork + len(t.Work[i].Payload)
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

func instanceSize(in *edda.Instance) int {
	n := sizeInstance + len(in.State) + len(in.Result) + len(in.Reason)
	n += stepsSize(in.Steps) + stepsSize(in.Older)
	for i := range in.Frames {
		n += frameSize(&in.Frames[i])
	}
	for i := range in.Undos {
		n += sizeStep + frameSize(&in.Undos[i].Frame) + len(in.Undos[i].Input) + len(in.Undos[i].Error)
	}
	for i := range in.Threads {
		n += sizeSmall + sizeSmall*len(in.Threads[i].Stack) + scopeSize(in.Threads[i].Scope)
	}
	for _, id := range in.Recent {
		n += len(id) + len(`"",`)
	}
	for i := range in.Incidents {
		n += sizeSmall + len(in.Incidents[i].Error)
	}
	return n + valuesSize(in.Seen) + sizeSmall*(len(in.Timers)+len(in.Groups)+len(in.Joined))
}

func stepsSize(steps []edda.Step) (n int) {
	for i := range steps {
		s := &steps[i]
		n += sizeStep + len(s.Input) + len(s.Result) + len(s.Error) + len(s.Item) + scopeSize(s.Scope)
	}
	return n
}

func frameSize(f *edda.Frame) int {
	return sizeSmall + len(f.Input) + len(f.Result) + scopeSize(f.Scope)
}

func scopeSize(s *edda.Scope) int {
	if s == nil {
		return 0
	}
	return sizeSmall + len(s.Event) + len(s.Meta) + valuesSize(s.Values)
}

func valuesSize(values map[string]json.RawMessage) (n int) {
	for name, v := range values {
		n += len(name) + len(v)
	}
	return n
}
