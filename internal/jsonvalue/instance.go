package jsonvalue

import "edda"

func instance(c *Coder, v *edda.Instance) {
	c.Struct("key", &v.Key)
	c.Int("version", &v.Version)
	c.Text("hash", &v.Hash)
	c.Int("generation", &v.Generation)
	c.Text("status", (*string)(&v.Status))
	c.TextIf("reason", &v.Reason)
	c.JSONIf("result", &v.Result)
	c.JSONIf("state", &v.State)
	c.Time("started", &v.Started)
	c.Time("updated", &v.Updated)
	c.TimeIf("ended", &v.Ended)
	c.Uint("revision", &v.Revision)
	ListIf(c, "steps", &v.Steps)
	ListIf(c, "older", &v.Older)
	ListIf(c, "groups", &v.Groups)
	ListIf(c, "frames", &v.Frames)
	ListIf(c, "undos", &v.Undos)
	ListIf(c, "timers", &v.Timers)
	ListIf(c, "threads", &v.Threads)
	c.ValuesIf("seen", &v.Seen)
	c.TextsIf("joined", &v.Joined)
	c.TextsIf("recent", &v.Recent)
	c.TextsIf("incomplete", &v.Incomplete)
	c.TrueIf("unwound", &v.Unwound)
	ListIf(c, "incidents", &v.Incidents)
	c.TrueIf("past", &v.Past)
	c.TextIf("held", &v.Held)
	c.KeyIf("parent", &v.Parent)
	c.TextIf("parent_command", &v.ParentCommand)
	c.TextIf("correlation", &v.Correlation)
	c.TextIf("trace", &v.Trace)
	c.IntIf("ordinal", &v.Ordinal)
	c.TimeIf("armed", &v.Armed)
	c.IntIf("parts", &v.Parts)
}

func step(c *Coder, v *edda.Step) {
	c.Text("id", &v.ID)
	c.Text("kind", (*string)(&v.Kind))
	c.Text("name", &v.Name)
	c.Text("command", &v.Command)
	c.Text("status", (*string)(&v.Status))
	c.Int("attempt", &v.Attempt)
	c.JSONIf("input", &v.Input)
	c.IntIf("effect_version", &v.EffectVersion)
	c.JSONIf("result", &v.Result)
	c.JSONIf("error", &v.Error)
	c.Time("emitted", &v.Emitted)
	c.TimeIf("due", &v.Due)
	c.SpanIf("wait", &v.Wait)
	c.Int("order", &v.Order)
	c.KeyIf("target", &v.Target)
	c.TrueIf("must", &v.Must)
	c.TextsIf("choices", &v.Choices)
	c.TextIf("to", &v.To)
	c.TrueIf("late", &v.Late)
	c.TextIf("group", &v.Group)
	c.IntIf("index", &v.Index)
	c.JSONIf("item", &v.Item)
	c.Text("action", &v.Action)
	PointerIf(c, "scope", &v.Scope)
	c.TrueIf("revoked", &v.Revoked)
}

func group(c *Coder, v *edda.EachRound) {
	c.Text("id", &v.ID)
	c.Int("total", &v.Total)
}

func frame(c *Coder, v *edda.Frame) {
	c.Text("step", &v.Step)
	c.Text("command", &v.Command)
	c.Text("action", &v.Action)
	c.JSONIf("input", &v.Input)
	c.JSONIf("result", &v.Result)
	PointerIf(c, "scope", &v.Scope)
	c.IntIf("attempt", &v.Attempt)
	c.IntIf("order", &v.Order)
	c.TextIf("idempotency_key", &v.Key)
}

func undo(c *Coder, v *edda.Undo) {
	c.Struct("frame", &v.Frame)
	c.Text("step", &v.Step)
	c.Text("effect", &v.Effect)
	c.Text("command", &v.Command)
	c.JSONIf("input", &v.Input)
	c.IntIf("effect_version", &v.EffectVersion)
	c.TimeIf("due", &v.Due)
	c.SpanIf("wait", &v.Wait)
	c.Int("order", &v.Order)
	c.Int("attempt", &v.Attempt)
	c.Text("idempotency_key", &v.Key)
	c.TrueIf("explicit", &v.Explicit)
	c.TextIf("raise", &v.Raise)
	ListIf(c, "rest", &v.Rest)
	c.TrueIf("failed", &v.Failed)
	c.TrueIf("unknown", &v.Unknown)
	c.JSONIf("error", &v.Error)
}

func timer(c *Coder, v *edda.Timer) {
	c.Text("name", &v.Name)
	c.Time("due", &v.Due)
	c.SpanIf("every", &v.Every)
	c.TextIf("catchup", &v.Catchup)
	c.Int("order", &v.Order)
	c.TrueIf("deadline", &v.Deadline)
	PointerIf(c, "calendar", &v.Calendar)
}

func calendar(c *Coder, v *edda.Calendar) {
	c.Text("every", &v.Every)
	c.Text("zone", &v.Zone)
	c.TextIf("at", &v.At)
	c.Time("anchor", &v.Anchor)
	c.Int("n", &v.N)
}

func thread(c *Coder, v *edda.Thread) {
	c.Int("n", &v.N)
	List(c, "stack", &v.Stack)
	c.Text("waits", &v.Waits)
	c.TextIf("command", &v.Command)
	PointerIf(c, "scope", &v.Scope)
	c.TrueIf("late", &v.Late)
}

func position(c *Coder, v *edda.SeqPosition) {
	c.Text("seq", &v.Seq)
	c.Int("next", &v.Next)
}

func scope(c *Coder, v *edda.Scope) {
	c.Text("handler", &v.Handler)
	c.JSONIf("event", &v.Event)
	c.JSONIf("meta", &v.Meta)
	c.ValuesIf("values", &v.Values)
	c.NotesIf("broken", &v.Broken)
}

func incident(c *Coder, v *edda.Incident) {
	c.Text("step", &v.Step)
	c.Text("reason", &v.Reason)
	c.JSONIf("error", &v.Error)
	c.Time("time", &v.Time)
	c.TrueIf("orphan", &v.Orphan)
}
