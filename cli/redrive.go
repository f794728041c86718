package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
)

const (
	// defaultRedrives bounds the dead letters of one command. After so many an operator
	// should look at the result before continuing.
	defaultRedrives = 1000
	maxRedrives     = 1_000_000
)

// deadLetterBatch holds the flags of a command with --all.
type deadLetterBatch struct {
	deadLetterFilter
	all   bool
	most  int
	after string
}

func (m *deadLetterBatch) register(c *client, cmd *cobra.Command) {
	m.deadLetterFilter.register(cmd, "reason-of")
	offerBy(cmd, "saga", c.completeSagas)
	cmd.Flags().BoolVar(&m.all, "all", false, "all dead letters, narrowed by --saga and --reason-of")
	cmd.Flags().IntVar(&m.most, "max", defaultRedrives, "with --all: maximum number")
	cmd.Flags().StringVar(&m.after, "after", "", "with --all: position to continue from, as an earlier run printed it")
}

func (m *deadLetterBatch) check(a []string) error {
	switch {
	case m.all == (len(a) == 1):
		return usagef("name one dead letter, or say --all; edda deadletter list shows them")
	case !m.all && (m.saga != "" || m.reason != "" || m.after != ""):
		return usagef("--saga, --reason-of and --after choose among --all")
	case m.most < 1 || m.most > maxRedrives:
		return usagef("--max %d: want 1 to %d", m.most, maxRedrives)
	}
	return m.deadLetterFilter.check()
}

// redriving holds the flags of edda deadletter redrive.
type redriving struct {
	deadLetterBatch
	data string
}

func (c *client) redriveCommand() *cobra.Command {
	var r redriving
	cmd := &cobra.Command{
		Use: "redrive ID | --all", Short: "Apply the event of a dead letter again, and the events held behind it",
		Example: `  edda deadletter redrive 0191… --why "manifest mended"
  edda deadletter redrive 0191… --data '{"amount": 7}' --why "amount was missing"
  edda deadletter redrive --all --saga order --reason-of poison --why "version 4 is out"`,
		Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: first(c.completeDeadLetters),
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
				return c.commandAll(cmd.Context(), edda.VerbRedrive, r.deadLetterBatch)
			}
			view, raw, err := c.commandDeadLetter(cmd.Context(), a[0], edda.VerbRedrive, body)
			if err != nil {
				return err
			}
			return c.printDeadLetterResult(view, raw)
		},
	}
	r.register(c, cmd)
	cmd.Flags().StringVar(&r.data, "data", "", "payload that replaces the event's: JSON, @FILE, or - for standard input; for an undecodable message, its whole body")
	c.output.register(cmd)
	c.registerActor(cmd)
	return cmd
}

func (r *redriving) check(c *client, a []string) error {
	if err := r.deadLetterBatch.check(a); err != nil {
		return err
	}
	if r.all && r.data != "" {
		return usagef("--data is for one dead letter: name it")
	}
	return c.reasoned("redrive")
}

func (c *client) giveUpCommand(verb, short string) *cobra.Command {
	var m deadLetterBatch
	cmd := &cobra.Command{
		Use: verb + " ID | --all", Short: short, Args: args(cobra.MaximumNArgs(1)), ValidArgsFunction: first(c.completeDeadLetters),
		RunE: func(cmd *cobra.Command, a []string) error {
			if err := errors.Join(m.check(a), c.reasoned(verb)); err != nil {
				return err
			}
			if m.all {
				if err := c.sure(true, verb+" --all"); err != nil {
					return err
				}
				return c.commandAll(cmd.Context(), verb, m)
			}
			view, raw, err := c.commandDeadLetter(cmd.Context(), a[0], verb, nil)
			if err != nil {
				return err
			}
			return c.printDeadLetterResult(view, raw)
		},
	}
	m.register(c, cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "with --all: do not ask")
	c.output.register(cmd)
	c.registerActor(cmd)
	return cmd
}

func (c *client) commandDeadLetter(ctx context.Context, id, verb string, data json.RawMessage) (view server.LetterActView, raw []byte, err error) {
	body, err := json.Marshal(struct {
		Why  string          `json:"why"`
		Data json.RawMessage `json:"data,omitempty"`
	}{c.why, data})
	if err != nil {
		return view, nil, fmt.Errorf("write the call: %w", err)
	}
	raw, err = c.callInto(ctx, http.MethodPost, "/v1/deadletters/"+segment(id)+"/"+verb, body, &view)
	return view, raw, err
}

func (c *client) printDeadLetterResult(v server.LetterActView, raw []byte) error {
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
	if err := c.acted(raw, v.DeadLetter, line, v.Outputs); err != nil {
		return err
	}
	if v.Next != "" && c.output == outputTable {
		fmt.Fprintf(c.term.err, "the key is held again, by dead letter %s\n", printable(v.Next))
	}
	return nil
}
