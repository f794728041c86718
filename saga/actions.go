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
}

// member is the item of an each that an action runs for.
type member struct {
	group string
	index int
	item  json.RawMessage
}

// act runs one action, if its condition holds.
func (r *run) act(a *action, sc *scope) (wait, error) {
	return r.actMember(a, sc, nil)
}

func (r *run) actMember(a *action, sc *scope, m *member) (wait, error) {
	defer r.within(r.uniquePath(m.suffix(a.path)))()
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

// suffix is the member's path in derived ids: the path, then the item's index.
func (m *member) suffix(path string) string {
	if m == nil {
		return path
	}
	return path + "[" + strconv.Itoa(m.index) + "]"
}

// emitStep emits an effect, an ask or a child saga.
func (r *run) emitStep(a *action, sc *scope, m *member) (wait, error) {
	s, err := r.newStep(a, sc, m)
	if err != nil {
		return wait{}, err
	}
	switch s.Kind {
	case edda.StepAsk:
		err = r.emitAsk(a, sc, &s)
	case edda.StepStart:
		err = r.emitStart(a, sc, &s)
	default:
		r.sendEffect(a, &s, s.Command)
	}
	if err != nil {
		return wait{}, err
	}
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
	if slices.Contains(r.emitted, s.ID) {
		return s, r.poison("step %q is emitted twice in one transition: give one of them another id", s.ID)
	}
	r.emitted = append(r.emitted, s.ID)
	if s.Must && !s.Late {
		r.in.Past = true
	}
	return s, r.fillStep(a, sc, &s)
}

func (r *run) fillStep(a *action, sc *scope, s *edda.Step) (err error) {
	if s.Input, err = a.with.json(sc); err != nil {
		return err
	}
	if s.Wait, err = r.dueIn(a, sc); err != nil {
		return err
	}
	if a.undo != nil && !s.Late {
		s.Scope, err = sc.keep(a.needs)
	}
	return err
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
	r.dropThreads(func(t edda.Thread) bool { return t.Command == s.Command })
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

// sendEffect sends the step's command; key is the idempotency key for the provider.
func (r *run) sendEffect(a *action, s *edda.Step, key string) {
	due := cmp.Or(a.wait(s.Wait), defaultDue)
	s.Due, s.Order = r.now.Add(due), r.ordinal()
	r.output(edda.Output{
		Word: "effect", Name: s.Name, Step: s.ID, ID: s.Command, With: s.Input, Due: durationText(due), Attempt: s.Attempt, Version: s.EffectVersion,
	})
	r.send(edda.Work{
		ID: s.Command, Kind: edda.WorkEffect, Name: s.Name, Payload: s.Input, EffectVersion: s.EffectVersion,
		Step: s.ID, Attempt: s.Attempt, IdempotencyKey: key, NotAfter: s.Due, High: a.src.High,
	})
}

func (r *run) emitAsk(a *action, sc *scope, s *edda.Step) error {
	to, err := a.to.eval(sc)
	if err != nil {
		return err
	}
	if s.To, err = identifier(to); err != nil {
		return r.poison("ask: to %v", err)
	}
	s.Choices = choicesOf(s.Input)
	r.sendAsk(a, s)
	return nil
}

func (r *run) sendAsk(a *action, s *edda.Step) {
	o := edda.Output{Word: "ask", Name: s.Name, Step: s.ID, ID: s.Command, To: s.To, With: s.Input, Attempt: s.Attempt}
	if due := a.wait(s.Wait); due > 0 {
		s.Due, s.Order = r.now.Add(due), r.ordinal()
		o.Due = durationText(due)
	}
	r.output(o)
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

func (r *run) emitStart(a *action, sc *scope, s *edda.Step) error {
	correlation, err := r.identifier(a.key, sc, "key")
	if err != nil {
		return err
	}
	s.Target = edda.Key{Tenant: r.key.Tenant, Saga: s.Name, Correlation: correlation}
	r.sendStart(a, s)
	return nil
}

func (r *run) sendStart(a *action, s *edda.Step) {
	o := edda.Output{
		Word: "start", Name: s.Name, Step: s.ID, ID: s.Command, Key: s.Target.Correlation, With: s.Input, Attempt: s.Attempt,
	}
	if due := a.wait(s.Wait); due > 0 {
		s.Due, s.Order = r.now.Add(due), r.ordinal()
		o.Due = durationText(due)
	}
	r.output(o)
	w := edda.Work{ID: s.Command, Kind: edda.WorkStart, Name: s.Name, Target: s.Target, CommandID: s.Command, Payload: s.Input, Step: s.ID, High: a.src.High}
	if a.src.Event != nil {
		w.Event = a.src.Event.Text
	}
	r.send(w)
}

// identifier evaluates a value that must name something.
func (r *run) identifier(v *value, sc *scope, what string) (string, error) {
	x, err := v.eval(sc)
	if err != nil {
		return "", err
	}
	id, err := identifier(x)
	if err != nil {
		return "", r.poison("%s %v", what, err)
	}
	if id == "" {
		return "", r.poison("%s is empty", what)
	}
	return id, nil
}

// emitEach emits one round of actions, one for each item, all at once.
func (r *run) emitEach(a *action, sc *scope, _ *member) (wait, error) {
	list, err := r.items(a, sc)
	if err != nil {
		return wait{}, err
	}
	group := a.stepID()
	if slices.Contains(r.emitted, group) {
		return wait{}, r.poison("group %q is emitted twice in one transition: give one of them another id", group)
	}
	r.emitted = append(r.emitted, group)
	r.newRound(group)
	for i, item := range list {
		if err := r.emitItem(a, sc, group, i, item); err != nil {
			return wait{}, err
		}
	}
	r.in.Groups = append(r.in.Groups, edda.EachRound{ID: group, Total: len(r.view().members(group))})
	return wait{step: group}, r.joinIfEmpty(group)
}

func (r *run) items(a *action, sc *scope) ([]any, error) {
	v, err := sc.eval(a.each)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, r.poison("each: %s is a %s, not a list", a.src.Each.Source, jsonvalue.TypeName(v))
	}
	return list, nil
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
	r.dropThreads(func(t edda.Thread) bool { return t.Waits == group && t.Command == "" })
	r.in.Groups = slices.DeleteFunc(r.in.Groups, func(g edda.EachRound) bool { return g.ID == group })
}

func (r *run) emitItem(a *action, sc *scope, group string, i int, item any) error {
	raw, err := jsonvalue.Encode(item)
	if err != nil {
		return err
	}
	as := a.src.As
	if as == "" {
		as = defaultAs
	}
	inner := sc.within(map[string]any{as: item, eachIndex: i})
	m := &member{group: group, index: i, item: raw}
	for _, action := range a.do {
		if _, err := r.actMember(action, inner, m); err != nil {
			return err
		}
	}
	return nil
}

// joinIfEmpty raises .all at once for a group without members.
func (r *run) joinIfEmpty(group string) error {
	if r.pendingIn(group) > 0 {
		return nil
	}
	_, err := r.raise(group+".all", nil)
	return err
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

// emitCommand sends an aggregate command. No seq waits for it.
func (r *run) emitCommand(a *action, sc *scope, m *member) error {
	to, err := a.to.eval(sc)
	if err != nil {
		return err
	}
	id, err := identifier(to)
	if err != nil {
		return r.poison("command: to %v", err)
	}
	with, err := a.with.json(sc)
	if err != nil {
		return err
	}
	s := edda.Step{
		ID: a.stepID(), Kind: edda.StepCommand, Name: a.src.Name.Text, Command: r.id(r.path), Status: edda.StepOK,
		Attempt: 1, Input: with, Emitted: r.now, Action: a.path, Late: !r.running(), To: id,
	}
	if m != nil && a.src.ID != nil {
		s.ID, s.Index, s.Item = fmt.Sprintf("%s[%d]", s.ID, m.index), m.index, m.item
	}
	r.sendCommand(s, a.src.High, "")
	return r.commandStep(a, sc, s)
}

func (r *run) sendCommand(s edda.Step, high bool, undoes string) {
	o := edda.Output{Word: "command", Name: s.Name, Step: s.ID, ID: s.Command, To: s.To, With: s.Input, Undoes: undoes}
	w := edda.Work{ID: s.Command, Kind: edda.WorkCommand, Name: s.Name, To: s.To, Payload: s.Input, Step: s.ID, High: high}
	r.output(o)
	r.send(w)
}

// commandStep stores what a later rejection needs: the step, if it has an id, and the frame.
func (r *run) commandStep(a *action, sc *scope, s edda.Step) error {
	if a.src.ID != nil {
		if slices.Contains(r.emitted, s.ID) {
			return r.poison("step %q is emitted twice in one transition: give one of them another id", s.ID)
		}
		r.emitted = append(r.emitted, s.ID)
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

// armTimer arms a named timer, and replaces an armed one of that name.
func (r *run) armTimer(a *action, sc *scope, _ *member) error {
	t, text, err := r.timerTime(a, sc)
	if err != nil {
		return err
	}
	t.Name, t.Order, t.Catchup = a.src.Name.Text, r.ordinal(), a.src.Catchup
	if !r.running() {
		return nil // timers end with the saga
	}
	r.dropTimer(t.Name)
	r.in.Timers = append(r.in.Timers, t)
	r.output(edda.Output{Word: "timer", Name: t.Name, For: text})
	return nil
}

func (r *run) timerTime(a *action, sc *scope) (edda.Timer, string, error) {
	switch {
	case a.at != nil:
		at, err := r.timeValue(a.at, sc)
		return edda.Timer{Due: at}, edda.FormatTime(at), err
	case a.every != nil:
		d, err := r.durationValue(a.every, sc)
		if err == nil && d < minEvery {
			err = r.poison("timer: every %s is shorter than %s", durationText(d), durationText(minEvery))
		}
		return edda.Timer{Due: r.now.Add(d), Every: d}, durationText(d), err
	}
	d, err := r.durationValue(a.after, sc)
	return edda.Timer{Due: r.now.Add(max(d, 0))}, durationText(d), err
}

// minEvery bounds a repeating timer, because each firing adds a row of history.
const minEvery = time.Millisecond

func (r *run) durationValue(v *value, sc *scope) (time.Duration, error) {
	x, err := v.eval(sc)
	if err != nil {
		return 0, err
	}
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

func (r *run) timeValue(v *value, sc *scope) (time.Time, error) {
	x, err := v.eval(sc)
	if err != nil {
		return time.Time{}, err
	}
	text, _ := x.(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, r.poison("timer: at is not an RFC 3339 time: %.60v", x)
	}
	return clockMillis(at), nil
}

func (r *run) dropTimer(name string) bool {
	n := len(r.in.Timers)
	r.in.Timers = slices.DeleteFunc(r.in.Timers, func(t edda.Timer) bool { return t.Name == name && !t.Deadline })
	return len(r.in.Timers) < n
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
