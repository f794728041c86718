package saga

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"edda"
	"edda/internal/jsonvalue"
	"edda/manifests"
)

// wait is what a seq waits for after an action; the zero value means nothing.
type wait struct {
	step    string // or group
	command string // identifies the round
	ends    bool   // the seq ends here
}

// member is the item of an each that an action runs for.
type member struct {
	group string
	index int
	item  json.RawMessage
}

// act runs one action, if its condition holds. m is nil outside an each.
func (r *run) act(a *action, sc *scope, m *member) (wait, error) {
	path := a.path
	if m != nil {
		path += "[" + strconv.Itoa(m.index) + "]"
	}
	defer r.within(r.uniquePath(path))()
	if ok, err := sc.isTrue(a.iff); err != nil || !ok {
		return wait{}, err
	}
	if r.actions++; r.actions > r.p.o.MaxActions && !r.unbounded {
		return wait{}, r.poison("more than %d actions in one transition: split the work, or raise the limit", r.p.o.MaxActions)
	}
	if a.verb.emit != nil {
		return a.verb.emit(r, a, sc, m)
	}
	return wait{}, a.verb.act(r, a, sc, m)
}

// set runs a set or an unset.
func (r *run) set(a *action, sc *scope, _ *member) error { return r.assign(sc, a.set, a.unset) }

// emitOnce refuses the id of a step or a group that this transition has emitted before.
func (r *run) emitOnce(what, id string) error {
	if slices.Contains(r.emitted, id) {
		return r.poison("%s %q is emitted twice in one transition: give one of them another id", what, id)
	}
	r.emitted = append(r.emitted, id)
	return nil
}

// emitStep emits an effect, an ask or a child saga.
func (r *run) emitStep(a *action, sc *scope, m *member) (wait, error) {
	s, err := r.newStep(a, sc, m)
	if err != nil {
		return wait{}, err
	}
	switch s.Kind {
	case edda.StepAsk:
		if s.To, err = r.identifier(a.to, sc, "ask: to"); err != nil {
			return wait{}, err
		}
		s.Choices = choicesOf(s.Input)
	case edda.StepStart:
		correlation, err := r.identifier(a.key, sc, "key")
		if err != nil {
			return wait{}, err
		}
		if correlation == "" {
			return wait{}, r.poison("key is empty")
		}
		s.Target = edda.Key{Tenant: r.key.Tenant, Saga: s.Name, Correlation: correlation}
	}
	r.sendStep(a, &s, s.Command)
	r.putStep(s)
	return wait{step: s.ID, command: s.Command}, nil
}

func (r *run) newStep(a *action, sc *scope, m *member) (edda.Step, error) {
	s := edda.Step{
		ID: a.stepID(), Kind: edda.StepKind(a.src.Kind), Name: a.src.Name.Text, Command: r.id(r.path),
		Status: edda.StepPending, Attempt: 1, Emitted: r.now, Must: a.src.Must, Action: a.path, Late: !r.running(),
		EffectVersion: a.src.Version,
	}
	if m != nil {
		s.ID, s.Group, s.Index, s.Item = fmt.Sprintf("%s[%d]", m.group, m.index), m.group, m.index, m.item
	}
	err := r.emitOnce("step", s.ID)
	if err != nil {
		return s, err
	}
	if s.Must && !s.Late {
		r.in.Past = true
	}
	if s.Input, err = a.with.json(sc); err != nil {
		return s, err
	}
	if s.Wait, err = r.dueIn(a, sc); err != nil {
		return s, err
	}
	if a.undo != nil && !s.Late {
		s.Scope, err = sc.keep(a.needs)
	}
	return s, err
}

// putStep stores the step's new round. A round that is still pending is tracked by its command id
// until it is settled.
func (r *run) putStep(s edda.Step) {
	before := r.step(s.ID)
	if before == nil {
		r.in.Steps = append(r.in.Steps, s)
		return
	}
	r.supersede(*before)
	*before = s
}

// supersede ends a step's round: its handlers do not run any more and its seq ends.
func (r *run) supersede(s edda.Step) {
	if s.Status != edda.StepPending {
		return
	}
	r.removeThreads(func(t edda.Thread) bool { return t.Command == s.Command })
	r.dropIncident(s.ID)
	if s.Kind == edda.StepAsk || s.Late {
		return // nothing has happened that may need an undo
	}
	r.in.Older = append(r.in.Older, s)
}

// wait is how long the saga waits for the outcome; zero if the manifest does not say.
func (a *action) wait(evaluated time.Duration) time.Duration {
	if a.src.Due != nil {
		return a.src.Due.D
	}
	return evaluated
}

// dueIn evaluates a due that is an expression; zero if it is none.
func (r *run) dueIn(a *action, sc *scope) (time.Duration, error) {
	if a.due == nil {
		return 0, nil
	}
	d, err := r.durationValue(a.due, sc)
	if err == nil && d <= 0 {
		err = r.poison("due is a duration above zero, not %s", durationText(d))
	}
	return d, err
}

// sendStep sends an effect, an ask or a child's start, and arms its due time. key is the idempotency
// key that the provider of an effect is shown. An ask sends no work.
func (r *run) sendStep(a *action, s *edda.Step, key string) {
	due := a.wait(s.Wait)
	if s.Kind == edda.StepEffect {
		due = cmp.Or(due, defaultDue)
	}
	o := edda.Output{
		Word: string(s.Kind), Name: s.Name, Step: s.ID, ID: s.Command, To: s.To, Key: s.Target.Correlation, With: s.Input,
		Attempt: s.Attempt, Version: s.EffectVersion,
	}
	if due > 0 {
		s.Due, s.Order = r.now.Add(due), r.ordinal()
		o.Due = durationText(due)
	}
	r.output(o)
	w := edda.Work{ID: s.Command, Name: s.Name, Payload: s.Input, Step: s.ID, High: a.src.High}
	switch s.Kind {
	case edda.StepEffect:
		w.Kind, w.EffectVersion, w.Attempt = edda.WorkEffect, s.EffectVersion, s.Attempt
		w.IdempotencyKey, w.NotAfter = key, s.Due
	case edda.StepStart:
		w.Kind, w.Target, w.CommandID = edda.WorkStart, s.Target, s.Command
		if a.src.Event != nil {
			w.Event = a.src.Event.Text
		}
	default:
		return
	}
	r.send(w)
}

// choicesOf reads with.choices; without any, every answer is valid.
func choicesOf(with json.RawMessage) []string {
	var v struct {
		Choices []string `json:"choices"`
	}
	if json.Unmarshal(with, &v) != nil {
		return nil
	}
	return v.Choices
}

// identifier evaluates a value that names something; null is empty. what begins an error.
func (r *run) identifier(v *value, sc *scope, what string) (string, error) {
	x, err := v.eval(sc)
	if err != nil {
		return "", err
	}
	id, err := identifier(x)
	if err != nil {
		return "", r.poison("%s %v", what, err)
	}
	return id, nil
}

// emitEach emits one round of actions, one for each item, all at once.
func (r *run) emitEach(a *action, sc *scope, _ *member) (wait, error) {
	v, err := sc.eval(a.each)
	if err != nil {
		return wait{}, err
	}
	list, ok := v.([]any)
	if !ok && v != nil {
		return wait{}, r.poison("each: %s is a %s, not a list", a.src.Each.Source, jsonvalue.TypeName(v))
	}
	group := a.stepID()
	if err := r.emitOnce("group", group); err != nil {
		return wait{}, err
	}
	r.newRound(group)
	as := cmp.Or(a.src.As, defaultAs)
	for i, item := range list {
		raw, err := jsonvalue.Encode(item)
		if err != nil {
			return wait{}, err
		}
		inner, m := sc.within(map[string]any{as: item, eachIndex: i}), &member{group: group, index: i, item: raw}
		for _, action := range a.do {
			if _, err := r.act(action, inner, m); err != nil {
				return wait{}, err
			}
		}
	}
	r.in.Groups = append(r.in.Groups, edda.EachRound{ID: group, Total: len(r.view().members(group))})
	if r.pendingIn(group) == 0 { // the group has no members
		_, err = r.raise(group+".all", nil)
	}
	return wait{step: group}, err
}

// newRound ends the group's previous round. It tracks the pending members until they are settled
// and forgets the settled ones; their frames stay.
func (r *run) newRound(group string) {
	kept := r.in.Steps[:0:0]
	for _, s := range r.in.Steps {
		if s.Group != group {
			kept = append(kept, s)
			continue
		}
		r.supersede(s)
	}
	r.in.Steps = kept
	r.removeThreads(func(t edda.Thread) bool { return t.Waits == group && t.Command == "" })
	r.in.Groups = slices.DeleteFunc(r.in.Groups, func(g edda.EachRound) bool { return g.ID == group })
}

func (r *run) pendingIn(group string) int {
	n := 0
	for _, s := range r.in.Steps {
		if s.Group == group && s.Status == edda.StepPending {
			n++
		}
	}
	return n
}

// emitCommand sends an aggregate command. No seq waits for it. The instance keeps what a later
// rejection needs: the step, if it has an id, and the frame.
func (r *run) emitCommand(a *action, sc *scope, m *member) error {
	to, err := r.identifier(a.to, sc, "command: to")
	if err != nil {
		return err
	}
	with, err := a.with.json(sc)
	if err != nil {
		return err
	}
	s := edda.Step{
		ID: a.stepID(), Kind: edda.StepCommand, Name: a.src.Name.Text, Command: r.id(r.path), Status: edda.StepOK,
		Attempt: 1, Input: with, Emitted: r.now, Action: a.path, Late: !r.running(), To: to,
	}
	if m != nil && a.src.ID != nil {
		s.ID, s.Index, s.Item = fmt.Sprintf("%s[%d]", s.ID, m.index), m.index, m.item
	}
	r.sendCommand(s, a.src.High, "")
	if a.src.ID != nil {
		if err := r.emitOnce("step", s.ID); err != nil {
			return err
		}
		r.putStep(s)
	}
	if a.undo == nil || s.Late {
		return nil
	}
	kept, err := sc.keep(a.needs)
	if err != nil {
		return err
	}
	r.pushFrame(edda.Frame{Step: s.ID, Command: s.Command, Action: a.path, Input: s.Input, Scope: kept})
	return nil
}

func (r *run) sendCommand(s edda.Step, high bool, undoes string) {
	o := edda.Output{Word: "command", Name: s.Name, Step: s.ID, ID: s.Command, To: s.To, With: s.Input, Undoes: undoes}
	w := edda.Work{ID: s.Command, Kind: edda.WorkCommand, Name: s.Name, To: s.To, Payload: s.Input, Step: s.ID, High: high}
	r.output(o)
	r.send(w)
}

func (r *run) emitFact(a *action, sc *scope, _ *member) error {
	with, err := a.with.json(sc)
	if err != nil {
		return err
	}
	id := r.id(r.path)
	r.output(edda.Output{Word: "event", Name: a.src.Name.Text, ID: id, With: with})
	r.send(edda.Work{ID: id, Kind: edda.WorkFact, Name: a.src.Name.Text, Payload: with, High: a.src.High})
	return nil
}

func (r *run) emitMessage(a *action, sc *scope, _ *member) error {
	v, err := a.value.eval(sc)
	if err != nil {
		return err
	}
	with, err := encode(v)
	if err != nil {
		return err
	}
	name := ""
	if fields, ok := v.(map[string]any); ok {
		name, _ = fields["message"].(string)
	}
	id := r.id(r.path)
	r.output(edda.Output{Word: "message", Name: name, ID: id, With: with})
	r.send(edda.Work{ID: id, Kind: edda.WorkMessage, Name: name, Payload: with, High: a.src.High})
	return nil
}

func (r *run) durationValue(v *value, sc *scope) (time.Duration, error) {
	x, err := v.eval(sc)
	if err != nil {
		return 0, err
	}
	return r.durationOf(x)
}

func (r *run) durationOf(x any) (time.Duration, error) {
	text, ok := x.(string)
	if !ok {
		return 0, r.poison("%s is not a duration: write one such as \"30m\" or \"2d\"", jsonvalue.TypeName(x))
	}
	d, err := manifests.ParseDuration(text)
	if err != nil {
		return 0, r.poison("%v", err)
	}
	return d, nil
}

// cancel cancels a timer, an ask, a pending step or all members of a group's round. It does nothing
// if there is none of that name. None of the group's triggers is raised.
func (r *run) cancel(a *action, _ *scope, _ *member) error {
	name := a.src.Name.Text
	if r.dropTimer(name) {
		r.output(edda.Output{Word: "cancel", Name: name})
	}
	if s := r.step(name); s != nil && s.Status == edda.StepPending {
		r.output(edda.Output{Word: "cancel", Name: name})
		r.cancelStep(s)
		return r.afterGroup(*s) // a group continues without its cancelled member
	}
	if r.pendingIn(name) == 0 {
		return nil
	}
	r.output(edda.Output{Word: "cancel", Name: name})
	for i := range r.in.Steps {
		if s := &r.in.Steps[i]; s.Group == name && s.Status == edda.StepPending {
			r.cancelStep(s)
		}
	}
	r.removeThreads(func(t edda.Thread) bool { return t.Waits == name && t.Command == "" })
	return nil
}

// cancelStep ends the round of a pending step: its seq ends, and a result that still comes is
// late.
func (r *run) cancelStep(s *edda.Step) {
	before := *s
	r.withdraw(&before)
	before.Status = edda.StepPending
	r.supersede(before)
	s.Status, s.Revoked = edda.StepCancelled, true
}

// durationText formats a duration as people write it: 30m, 1h30m, 48h.
func durationText(d time.Duration) string {
	text := d.String()
	for _, tail := range []string{"m0s", "h0m"} {
		if n := len(text) - len(tail); n > 0 && text[n:] == tail {
			text = text[:n+1]
		}
	}
	return text
}
