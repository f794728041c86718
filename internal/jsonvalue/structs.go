package jsonvalue

import (
	"encoding/json"

	"edda"
)

// visit names the fields of *v in the order of their declaration.
func (c *Coder) visit(v any) {
	switch v := v.(type) {
	case *edda.Key:
		key(c, v)
	case *edda.Event:
		event(c, v)
	case *edda.Checkpoint:
		checkpoint(c, v)
	case *edda.Partly:
		partly(c, v)
	case *edda.Mark:
		mark(c, v)
	case *edda.Work:
		work(c, v)
	case *edda.Claim:
		claim(c, v)
	case *edda.Output:
		output(c, v)
	case *edda.Entry:
		entry(c, v)
	case *edda.Instance:
		instance(c, v)
	case *edda.Cell:
		cell(c, v)
	case *edda.Part:
		part(c, v)
	case Object:
		v.Fields(c)
	case *edda.Step:
		step(c, v)
	case *edda.EachRound:
		group(c, v)
	case *edda.Frame:
		frame(c, v)
	case *edda.Undo:
		undo(c, v)
	case *edda.Timer:
		timer(c, v)
	case *edda.Calendar:
		calendar(c, v)
	case *edda.Thread:
		thread(c, v)
	case *edda.SeqPosition:
		position(c, v)
	case *edda.Scope:
		scope(c, v)
	case *edda.Incident:
		incident(c, v)
	default:
		c.wrong = true
	}
}

// known reports whether visit names the fields of *v, or v needs no list.
func known(v any) bool {
	switch v.(type) {
	case *map[string]json.RawMessage,
		*edda.Key, *edda.Event, *edda.Checkpoint, *edda.Partly, *edda.Mark, *edda.Work, *edda.Claim, *edda.Output, *edda.Entry, *edda.Instance, *edda.Cell, *edda.Part, Object,
		*edda.Step, *edda.EachRound, *edda.Frame, *edda.Undo, *edda.Timer, *edda.Thread, *edda.SeqPosition, *edda.Scope, *edda.Incident:
		return true
	}
	return false
}

func key(c *Coder, v *edda.Key) {
	c.TextIf("tenant", &v.Tenant)
	c.TextIf("saga", &v.Saga)
	c.TextIf("correlation", &v.Correlation)
}

func event(c *Coder, v *edda.Event) {
	c.Text("kind", (*string)(&v.Kind))
	c.Text("id", &v.ID)
	c.TextIf("tenant", &v.Tenant)
	c.KeyIf("key", &v.Key)
	c.TextIf("type", &v.Type)
	c.TextIf("full_type", &v.FullType)
	c.TextIf("aggregate_type", &v.AggregateType)
	c.TextIf("aggregate_id", &v.AggregateID)
	c.IntIf("version", &v.Version)
	c.Time("time", &v.Time)
	c.TimeIf("stored", &v.Stored)
	c.TimeIf("timestamp", &v.Timestamp)
	c.TextIf("stream", &v.Stream)
	c.UintIf("seq", &v.Seq)
	c.IntIf("member", &v.Member)
	c.JSONIf("payload", &v.Payload)
	c.TextIf("correlation", &v.Correlation)
	c.TextIf("causation", &v.Causation)
	c.TextIf("trace", &v.Trace)
	c.TextIf("step", &v.Step)
	c.TextIf("command_id", &v.CommandID)
	c.TextIf("outcome", (*string)(&v.Outcome))
	c.IntIf("attempts", &v.Attempts)
	c.KeyIf("parent", &v.Parent)
	c.TextIf("by", &v.By)
	c.TextIf("why", &v.Why)
	c.TextIf("timer", (*string)(&v.Timer))
	c.TrueIf("redriven", &v.Redriven)
	c.IntIf("redrives", &v.Redrives)
	c.TextIf("malformed", &v.Malformed)
	c.TextIf("error", &v.Error)
	c.TextIf("subject", &v.Subject)
}

func mark(c *Coder, v *edda.Mark) {
	c.Text("stream", &v.Stream)
	c.Uint("seq", &v.Seq)
	c.Text("id", &v.ID)
	c.Time("time", &v.Time)
	c.IntIf("missing", &v.Missing)
}

func checkpoint(c *Coder, v *edda.Checkpoint) {
	c.Text("stream", &v.Stream)
	c.Uint("seq", &v.Seq)
	c.Time("time", &v.Time)
	c.Time("created", &v.Created)
	PointerIf(c, "partly", &v.Partly)
}

func partly(c *Coder, v *edda.Partly) {
	c.Uint("seq", &v.Seq)
	c.Time("time", &v.Time)
	c.Int("members", &v.Members)
}

func work(c *Coder, v *edda.Work) {
	c.Text("id", &v.ID)
	c.Text("kind", (*string)(&v.Kind))
	c.Struct("from", &v.From)
	c.TextIf("name", &v.Name)
	c.TextIf("to", &v.To)
	c.KeyIf("target", &v.Target)
	c.TextIf("event", &v.Event)
	c.TextIf("command_id", &v.CommandID)
	c.TextIf("outcome", (*string)(&v.Outcome))
	c.JSONIf("payload", &v.Payload)
	c.IntIf("effect_version", &v.EffectVersion)
	c.TextIf("step", &v.Step)
	c.IntIf("attempt", &v.Attempt)
	c.TextIf("idempotency_key", &v.IdempotencyKey)
	c.TimeIf("not_after", &v.NotAfter)
	c.Time("time", &v.Time)
	c.TextIf("correlation", &v.Correlation)
	c.TextIf("causation", &v.Causation)
	c.TextIf("trace", &v.Trace)
	c.TrueIf("high", &v.High)
}

func claim(c *Coder, v *edda.Claim) {
	c.TextIf("tenant", &v.Tenant)
	c.Text("command_id", &v.CommandID)
	c.Text("effect", &v.Effect)
	c.Text("owner", &v.Owner)
	c.Time("claimed", &v.Claimed)
	c.TrueIf("paused", &v.Paused)
	c.TrueIf("done", &v.Done)
	c.TextIf("outcome", (*string)(&v.Outcome))
	c.JSONIf("result", &v.Result)
	c.IntIf("attempts", &v.Attempts)
	c.TimeIf("finished", &v.Finished)
	c.TimeIf("taken", &v.Taken)
}

func output(c *Coder, v *edda.Output) {
	c.Text("word", &v.Word)
	c.TextIf("name", &v.Name)
	c.TextIf("step", &v.Step)
	c.TextIf("id", &v.ID)
	c.TextIf("to", &v.To)
	c.TextIf("key", &v.Key)
	c.JSONIf("with", &v.With)
	c.TextIf("due", &v.Due)
	c.TextIf("for", &v.For)
	c.TextIf("undoes", &v.Undoes)
	c.IntIf("attempt", &v.Attempt)
	c.IntIf("version", &v.Version)
	c.TextIf("reason", &v.Reason)
	c.TextsIf("incomplete", &v.Incomplete)
}

func entry(c *Coder, v *edda.Entry) {
	c.Uint("n", &v.N)
	c.Struct("event", &v.Event)
	c.TimeIf("expires", &v.Expires)
	c.TextIf("dead_letter", &v.DeadLetter)
}

func part(c *Coder, v *edda.Part) {
	c.Uint("n", &v.N)
	c.JSON("data", &v.Data)
}

func cell(c *Coder, v *edda.Cell) {
	c.Struct("Key", &v.Key)
	Pointer(c, "Instance", &v.Instance)
	List(c, "Parts", &v.Parts)
	List(c, "Parked", &v.Parked)
	List(c, "Held", &v.Held)
}
