package saga

import (
	"slices"

	"edda"
	"edda/internal/jsonvalue"
)

// continues reports whether an instance can continue with another text: its state is valid there,
// every pending step, undo, frame, timer and waiting seq has its place there, and the key is the
// same. old is its current text, nil if that is not loaded.
func (p *Program) continues(in *edda.Instance, old *Program) bool {
	return p.takesState(in) && p.takesSteps(in) && p.takesFrames(in) && p.takesTimers(in, old) && p.takesThreads(in) && p.rekeyed(old) == ""
}

func (p *Program) takesState(in *edda.Instance) bool {
	state, err := jsonvalue.Decode(in.State)
	return err == nil && validate(p.schema, state) == nil
}

func (p *Program) takesSteps(in *edda.Instance) bool {
	return !slices.ContainsFunc(slices.Concat(in.Steps, in.Older), func(s edda.Step) bool {
		a := p.actions[s.Action]
		open := s.Status == edda.StepPending || slices.ContainsFunc(in.Incidents, func(i edda.Incident) bool { return i.Step == s.ID })
		return open && (a == nil || a.src.Kind != string(s.Kind))
	})
}

// takesFrames checks the frames and the pending undos.
func (p *Program) takesFrames(in *edda.Instance) bool {
	frames := slices.Clone(in.Frames)
	for _, u := range in.Undos {
		frames = append(append(frames, u.Frame), u.Rest...)
	}
	for _, s := range in.Steps {
		if a := p.actions[s.Action]; s.Status == edda.StepPending && a != nil {
			frames = append(frames, edda.Frame{Action: s.Action})
		}
	}
	return !slices.ContainsFunc(frames, func(f edda.Frame) bool {
		a := p.actions[f.Action]
		return a == nil || f.Command != "" && a.undo == nil && a.src.Kind != verbCompensate
	})
}

// takesTimers checks that each timer with a handler still has one.
func (p *Program) takesTimers(in *edda.Instance, old *Program) bool {
	return !slices.ContainsFunc(in.Timers, func(t edda.Timer) bool {
		name := "timer." + t.Name
		return !t.Deadline && p.plain[name] == nil && (old == nil || old.plain[name] != nil)
	})
}

func (p *Program) takesThreads(in *edda.Instance) bool {
	return !slices.ContainsFunc(in.Threads, func(t edda.Thread) bool {
		return slices.ContainsFunc(t.Stack, func(at edda.SeqPosition) bool {
			seq, ok := p.seqs[at.Seq]
			return !ok || at.Next > len(seq)
		})
	})
}
