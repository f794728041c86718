package edda

import "encoding/json"

// About what the names and small fields of a part of an instance take as JSON.
const (
	sizeInstance = 300
	sizeStep     = 250
	sizeSmall    = 100 // of a frame, a timer, a group
)

// Size is about how many bytes the instance takes as JSON. It costs no encoding.
func (in *Instance) Size() int {
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

func stepsSize(steps []Step) (n int) {
	for i := range steps {
		s := &steps[i]
		n += sizeStep + len(s.Input) + len(s.Result) + len(s.Error) + len(s.Item) + scopeSize(s.Scope)
	}
	return n
}

func frameSize(f *Frame) int {
	return sizeSmall + len(f.Input) + len(f.Result) + scopeSize(f.Scope)
}

func scopeSize(s *Scope) int {
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
