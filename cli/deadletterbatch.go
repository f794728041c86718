package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"edda"
	"edda/internal/jsonvalue"
	"edda/server"
)

const (
	// batchSize bounds the dead letters of one call.
	batchSize = 100
	// noHeadway is how many consecutive calls may end early without any progress
	// before the command gives up.
	noHeadway = 2
)

// pastTense maps a verb to its past tense.
var pastTense = map[string]string{edda.VerbRedrive: "redriven", edda.VerbDrop: "dropped", edda.VerbSkip: "skipped"}

// tally sums up a command on many dead letters.
type tally struct {
	word                 string
	done, failed, passed int
	failures             []server.LetterFailure
	next                 string // place to continue at; empty at the end
}

// commandAll runs the command on the dead letters that exist now, one portion per call. It
// reports failures and continues. Finished portions stay finished if the command stops
// early; it then says where to continue.
func (c *client) commandAll(ctx context.Context, verb string, m deadLetterBatch) error {
	t := tally{word: pastTense[verb], next: m.after}
	idle := 0
	for left := m.most; left > 0; {
		p, err := c.deadLetterPortion(ctx, verb, m, t.next, min(left, batchSize))
		if err != nil {
			return c.brokenOff(t, err)
		}
		n := p.Done + p.Failed
		left -= n
		c.tell(&t, p)
		if idle = idleAfter(idle, n, p.Stopped); idle == noHeadway {
			return c.brokenOff(t, fmt.Errorf("the server goes no further: %s", p.Stopped))
		}
		if t.next == "" {
			break
		}
	}
	return c.printTally(t)
}

// idleAfter counts the consecutive portions without progress.
func idleAfter(idle, n int, stopped string) int {
	if n > 0 || stopped == "" {
		return 0
	}
	return idle + 1
}

func (c *client) deadLetterPortion(ctx context.Context, verb string, m deadLetterBatch, after string, limit int) (p server.LetterPortion, err error) {
	body, err := json.Marshal(map[string]string{"why": c.why})
	if err != nil {
		return p, fmt.Errorf("write the call: %w", err)
	}
	raw, err := c.call(ctx, http.MethodPost, "/v1/deadletters/"+verb+"?"+m.query(paging{after: after, limit: limit}), body)
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	return p, err
}

// tell adds a portion to the tally and prints the progress.
func (c *client) tell(t *tally, p server.LetterPortion) {
	t.done, t.failed, t.passed, t.next = t.done+p.Done, t.failed+p.Failed, t.passed+p.Passed, p.Next
	t.failures = append(t.failures, p.Failures...)
	for _, f := range p.Failures {
		fmt.Fprintf(c.term.err, "%s: %s\n", printable(f.DeadLetter), printable(f.Error))
	}
	if p.Stopped != "" {
		fmt.Fprintf(c.term.err, "%s, so far; %s\n", t, printable(p.Stopped))
	} else if p.Next != "" {
		fmt.Fprintf(c.term.err, "%s, so far\n", t)
	}
}

func (t *tally) String() string {
	text := fmt.Sprintf("%d %s, %d failed", t.done, t.word, t.failed)
	if t.passed > 0 {
		text += fmt.Sprintf(", %d hold nothing back", t.passed)
	}
	return text
}

// brokenOff prints what was done before the error, and how to continue.
func (c *client) brokenOff(t tally, err error) error {
	fmt.Fprintf(c.term.err, "%s; what is done stays done: say it again to go on", &t)
	if t.next != "" {
		fmt.Fprintf(c.term.err, ", with --after %s to leave out those that failed", t.next)
	}
	fmt.Fprintln(c.term.err)
	return err
}

func (c *client) printTally(t tally) error {
	if c.output == outputJSON {
		sum := map[string]any{t.word: t.done, "failed": t.failed, "passed": t.passed, "failures": append([]server.LetterFailure{}, t.failures...), "next": t.next}
		raw, err := jsonvalue.Encode(sum)
		if err != nil {
			return fmt.Errorf("write the summary: %w", err)
		}
		if err := indented(c.term.out, raw); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(c.term.out, &t)
	}
	if t.next != "" {
		fmt.Fprintf(c.term.err, "there are more: say it again, with --after %s to leave out those that failed, or add --max N\n", t.next)
	}
	if t.failed > 0 {
		return &silentError{}
	}
	return nil
}
