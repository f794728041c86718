package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
)

const (
	// defaultRedrives is how many dead letters one command redrives: so many
	// that a person would rather look at what happens before going on.
	defaultRedrives = 1000
	maxRedrives     = 100_000
	// progressEvery is how often a redrive of many says how far it is.
	progressEvery = 100
)

// redriving is what edda deadletter redrive is told.
type redriving struct {
	letterFilter
	data string
	all  bool
	most int
}

func (c *client) redriveCommand() *cobra.Command {
	var r redriving
	cmd := &cobra.Command{
		Use: "redrive ID | --all", Short: "Apply the event of a dead letter again, and those that are held behind it",
		Example: `  edda deadletter redrive 0191… --why "manifest mended"
  edda deadletter redrive 0191… --data '{"amount": 7}' --why "amount was missing"
  edda deadletter redrive --all --saga order --reason-of poison --why "version 4 is out"`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: first(c.completeLetters),
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := r.check(c, a); err != nil {
				return err
			}
			data, err := c.term.text("--data", r.data)
			if err != nil {
				return err
			}
			body, err := jsonFlag(data)
			if err != nil {
				return err
			}
			if r.all {
				return c.redriveAll(cmd.Context(), r)
			}
			view, raw, err := c.letterAct(cmd.Context(), a[0], edda.VerbRedrive, body)
			if err != nil {
				return err
			}
			return c.printLetterAct(view, raw)
		},
	}
	r.register(cmd, "reason-of")
	offerBy(cmd, "saga", c.completeSagas)
	cmd.Flags().StringVar(&r.data, "data", "", "another payload: JSON, @FILE, or - for standard input; for a message that could not be read, its whole body")
	cmd.Flags().BoolVar(&r.all, "all", false, "all dead letters, or those that --saga and --reason-of choose")
	cmd.Flags().IntVar(&r.most, "max", defaultRedrives, "with --all: at most so many")
	c.output.register(cmd)
	c.registerActor(cmd)
	return cmd
}

func (r *redriving) check(c *client, a []string) error {
	switch {
	case r.all == (len(a) == 1):
		return usagef("name one dead letter, or say --all; edda deadletter list shows them")
	case r.all && r.data != "":
		return usagef("--data is for one dead letter: name it")
	case !r.all && (r.saga != "" || r.reason != ""):
		return usagef("--saga and --reason-of choose among --all")
	case r.most < 1 || r.most > maxRedrives:
		return usagef("--max %d: want 1 to %d", r.most, maxRedrives)
	}
	if err := r.letterFilter.check(); err != nil {
		return err
	}
	return c.reasoned("redrive")
}

func (c *client) giveUpCommand(verb, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: args(cobra.ExactArgs(1)), ValidArgsFunction: first(c.completeLetters),
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := c.reasoned(verb); err != nil {
				return err
			}
			view, raw, err := c.letterAct(cmd.Context(), a[0], verb, nil)
			if err != nil {
				return err
			}
			return c.printLetterAct(view, raw)
		},
	}
	c.output.register(cmd)
	c.registerActor(cmd)
	return cmd
}

func (c *client) letterAct(ctx context.Context, id, verb string, data json.RawMessage) (server.LetterActView, []byte, error) {
	body, err := json.Marshal(struct {
		Why  string          `json:"why"`
		Data json.RawMessage `json:"data,omitempty"`
	}{c.why, data})
	if err != nil {
		return server.LetterActView{}, nil, fmt.Errorf("write the call: %w", err)
	}
	raw, err := c.call(ctx, http.MethodPost, "/v1/deadletters/"+segment(id)+"/"+verb, body)
	if err != nil {
		return server.LetterActView{}, nil, err
	}
	var view server.LetterActView
	if err := json.Unmarshal(raw, &view); err != nil {
		return view, nil, fmt.Errorf("decode the answer: %w", err)
	}
	return view, raw, nil
}

func (c *client) printLetterAct(v server.LetterActView, raw []byte) error {
	switch c.output {
	case outputJSON:
		return indented(c.term.out, raw)
	case outputIDs:
		fmt.Fprintln(c.term.out, v.DeadLetter)
		return nil
	}
	line := v.Fate
	if v.Where != "" {
		line += " to " + v.Where
	}
	if v.Behind > 0 {
		line += fmt.Sprintf("; %d with it", v.Behind)
	}
	if v.Status != "" {
		line += "; now " + string(v.Status)
	}
	fmt.Fprintln(c.term.out, printable(line))
	for _, o := range v.Outputs {
		fmt.Fprintln(c.term.out, "  "+printable(outputLine(o)))
	}
	if v.Next != "" {
		fmt.Fprintf(c.term.err, "the key is held again, by dead letter %s\n", printable(v.Next))
	}
	return nil
}

// redriven sums up a redrive of many.
type redriven struct {
	Redriven int              `json:"redriven"`
	Failed   int              `json:"failed"`
	Left     bool             `json:"left,omitempty"` // there are more than --max
	Failures []redriveFailure `json:"failures,omitempty"`
}

type redriveFailure struct {
	DeadLetter string `json:"dead_letter"`
	Error      string `json:"error"`
}

// redriveAll redrives those that there are now, oldest first, one after the
// other: what fails is told, and the next one is tried.
func (c *client) redriveAll(ctx context.Context, r redriving) error {
	ids, left, err := c.letterIDs(ctx, r)
	if err != nil {
		return err
	}
	sum := redriven{Left: left}
	for i, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, _, err := c.letterAct(ctx, id, edda.VerbRedrive, nil); err != nil {
			sum.Failed++
			sum.Failures = append(sum.Failures, redriveFailure{id, err.Error()})
			fmt.Fprintf(c.term.err, "%s: %s\n", printable(id), printable(err.Error()))
		} else {
			sum.Redriven++
		}
		if n := i + 1; n%progressEvery == 0 && n < len(ids) {
			fmt.Fprintf(c.term.err, "%d of %d, %d failed\n", n, len(ids), sum.Failed)
		}
	}
	return c.printRedriven(sum)
}

// letterIDs lists what is to be redriven before the first is, so that one which
// dies again is not met twice.
func (c *client) letterIDs(ctx context.Context, r redriving) (ids []string, left bool, err error) {
	var places []letterPlace
	for after := ""; !left; {
		_, list, err := c.letterPage(ctx, r.letterFilter, after, min(maxLetterPage, r.most))
		if err != nil {
			return nil, false, err
		}
		for _, d := range list.DeadLetters {
			if left = len(places) == r.most; left {
				break
			}
			places = append(places, letterPlace{d.ID, d.Event.Time, d.Event.Stream, d.Event.Seq})
		}
		if after = list.Next; after == "" {
			break
		}
	}
	slices.SortStableFunc(places, letterPlace.compare)
	for _, p := range places {
		ids = append(ids, p.id)
	}
	return ids, left, nil
}

// letterPlace is where the event of a dead letter came from: those of one key are
// redriven in the order in which they were sent.
type letterPlace struct {
	id     string
	time   time.Time
	stream string
	seq    uint64
}

func (p letterPlace) compare(q letterPlace) int {
	return cmp.Or(p.time.Compare(q.time), cmp.Compare(p.stream, q.stream), cmp.Compare(p.seq, q.seq))
}

func (c *client) printRedriven(sum redriven) error {
	if c.output == outputJSON {
		raw, err := json.Marshal(sum)
		if err != nil {
			return fmt.Errorf("write the summary: %w", err)
		}
		if err := indented(c.term.out, raw); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(c.term.out, "%d redriven, %d failed\n", sum.Redriven, sum.Failed)
	}
	if sum.Left {
		fmt.Fprintln(c.term.err, "there are more: say it again, or add --max N")
	}
	if sum.Failed > 0 {
		return &silentError{}
	}
	return nil
}
