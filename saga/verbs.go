package saga

import "edda/manifests"

// The words of the verbs that other code names.
const (
	verbEffect     = "effect"
	verbCommand    = "command"
	verbAsk        = "ask"
	verbSeq        = "seq"
	verbEach       = "each"
	verbTimer      = "timer"
	verbCompensate = "compensate"
	verbFail       = "fail"
)

// verb is a word of the language that makes an action, with all that this package does about it.
// The parser's part is in the table of package manifests.
type verb struct {
	// emit runs an action that a seq waits for, act runs any other. One of the two is set. The
	// member is nil outside an each.
	emit func(r *run, a *action, sc *scope, m *member) (wait, error)
	act  func(r *run, a *action, sc *scope, m *member) error
	// draw adds the action to a graph and returns the start of the edges to what waits for it.
	draw func(g *grapher, from edgeStart, a *manifests.Action) edgeStart

	// compile compiles what an action has besides its values and its undo. It may be nil, as the
	// three below may be.
	compile func(b *actionCompiler, a *action, names []string)
	collect func(n *names, a *manifests.Action)                      // notes the names that the action defines
	check   func(c *compiler, a *manifests.Action, n names)          // checks an action against the saga
	lint    func(l *linter, in *manifests.Saga, a *manifests.Action) // checks an action against other manifests

	step   bool // makes a step of its own
	each   bool // makes a group of steps
	inEach bool // may stand in an each
	nests  bool // holds other actions
	ends   bool // ends the saga
}

// verbs has every verb by its word.
type verbs map[string]*verb

// newVerbs returns the table. It is no variable, because the functions in it refer to the table.
func newVerbs() verbs {
	return verbs{
		verbEffect: {
			emit: (*run).emitStep, draw: (*grapher).drawStep, lint: (*linter).effect, step: true, inEach: true,
		},
		verbCommand: {
			act: (*run).emitCommand, draw: (*grapher).drawCommand, collect: (*names).addCommand, inEach: true,
		},
		"event":   {act: (*run).emitFact, draw: (*grapher).drawEmit, inEach: true},
		"message": {act: (*run).emitMessage, draw: (*grapher).drawEmit, compile: (*actionCompiler).message, inEach: true},
		verbAsk: {
			emit: (*run).emitStep, draw: (*grapher).drawStep, check: (*compiler).checkAsk, step: true, inEach: true,
		},
		"start": {emit: (*run).emitStep, draw: (*grapher).drawStep, lint: (*linter).start, step: true, inEach: true},
		verbSeq: {emit: (*run).startSeq, draw: (*grapher).drawSeq, compile: (*actionCompiler).seq, nests: true},
		verbEach: {
			emit: (*run).emitEach, draw: (*grapher).drawEach, compile: (*actionCompiler).each, each: true, nests: true,
		},
		"set":          {act: (*run).set, draw: (*grapher).drawNothing},
		verbTimer:      {act: (*run).armTimer, draw: (*grapher).drawTimer, collect: (*names).addTimer},
		"cancel":       {act: (*run).cancel, draw: (*grapher).drawAct, check: (*compiler).checkCancel},
		verbCompensate: {act: (*run).compensate, draw: (*grapher).drawCompensate},
		"undo":         {emit: (*run).emitUndo, draw: (*grapher).drawAct, check: (*compiler).checkUndo},
		"done":         {act: (*run).actDone, draw: (*grapher).drawEnd, ends: true},
		verbFail:       {act: (*run).actFail, draw: (*grapher).drawEnd, ends: true},
	}
}

// groupID is the id of an each: its own, or else its member's.
func (t verbs) groupID(a *manifests.Action) string {
	if a.ID != nil {
		return a.ID.Text
	}
	for _, m := range a.Do {
		if t[m.Kind].step {
			return stepID(m)
		}
	}
	return ""
}

func stepID(a *manifests.Action) string {
	if a.ID != nil {
		return a.ID.Text
	}
	return a.Name.Text
}
