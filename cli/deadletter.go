package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
)

func (t *terminal) deadLetterCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "deadletter", Aliases: []string{"dl"}, Short: "Show events that could not be applied; redrive, skip or drop them",
		Args: noun, RunE: help,
	}
	c.register(noun)
	onlyWords(noun, "ca", "cert", "key", "token-file")
	noun.AddCommand(c.deadLetterList(), c.deadLetterShow(), c.redriveCommand(),
		c.giveUpCommand(edda.VerbDrop, "Discard the event of a dead letter for good"),
		c.giveUpCommand(edda.VerbSkip, "Discard a poison event, and apply the events held behind it"))
	return noun
}

// deadLetterFilter selects dead letters.
type deadLetterFilter struct{ reason, saga string }

func (f *deadLetterFilter) register(cmd *cobra.Command, reason string) {
	cmd.Flags().StringVar(&f.reason, reason, "", "only dead letters with this reason: "+strings.Join(edda.DeadReasons, ", "))
	cmd.Flags().StringVar(&f.saga, "saga", "", "only dead letters of this saga")
	offer(cmd, reason, edda.DeadReasons)
}

func (f *deadLetterFilter) check() error {
	if f.reason != "" && !slices.Contains(edda.DeadReasons, f.reason) {
		return usagef("%q is no reason of a dead letter: want one of %s", f.reason, strings.Join(edda.DeadReasons, ", "))
	}
	return nil
}

// query returns the query of a page of the selected dead letters.
func (f *deadLetterFilter) query(p paging) string {
	return p.query(map[string]string{"reason": f.reason, "saga": f.saga})
}

// deadLetterPage fetches a page of dead letters.
func (c *client) deadLetterPage(ctx context.Context, f deadLetterFilter, p paging) ([]byte, server.DeadLetterList, error) {
	var found server.DeadLetterList
	raw, err := c.get(ctx, "/v1/deadletters?"+f.query(p), &found)
	return raw, found, err
}

func (c *client) deadLetterList() *cobra.Command {
	var f deadLetterFilter
	var p paging
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List dead letters, oldest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(page(p.limit), f.check()); err != nil {
				return err
			}
			if all {
				return c.listAllDead(cmd.Context(), f, p.after)
			}
			raw, found, err := c.deadLetterPage(cmd.Context(), f, p)
			if err != nil {
				return err
			}
			defer c.term.more("more", found.Next)
			return deadLetters().print(c.term, c.output, raw, found.DeadLetters)
		},
	}
	f.register(cmd, "reason")
	offerBy(cmd, "saga", c.completeSagas)
	cmd.Flags().BoolVar(&all, "all", false, "all pages")
	p.register(cmd, "next page")
	c.output.register(cmd)
	return cmd
}

// listAllDead prints page by page, so that its memory stays small. With -o json each page
// is one document.
func (c *client) listAllDead(ctx context.Context, f deadLetterFilter, after string) error {
	for {
		raw, found, err := c.deadLetterPage(ctx, f, paging{after: after, limit: maxPage})
		if err != nil {
			return err
		}
		if err := deadLetters().print(c.term, c.output, raw, found.DeadLetters); err != nil || found.Next == "" {
			return err
		}
		after = found.Next
	}
}

func deadLetters() listing[edda.DeadLetter] {
	return listing[edda.DeadLetter]{
		id: func(d edda.DeadLetter) string { return d.ID },
		columns: []column[edda.DeadLetter]{
			{"id", func(d edda.DeadLetter) string { return d.ID }},
			{"reason", func(d edda.DeadLetter) string { return d.Reason }},
			{"saga", func(d edda.DeadLetter) string { return d.Key.Saga }},
			{"key", func(d edda.DeadLetter) string { return d.Key.Correlation }},
			{"event", func(d edda.DeadLetter) string { return inputName(d.Event) }},
			{"time", func(d edda.DeadLetter) string { return ago(d.Time) }},
			{"error", shortError},
		},
	}
}

func (c *client) deadLetterShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show ID", Aliases: []string{"describe", "get", "info"}, Short: "Show one dead letter, with the next steps", Args: args(cobra.ExactArgs(1)),
		ValidArgsFunction: first(c.completeDeadLetters),
		RunE: func(cmd *cobra.Command, a []string) error {
			var d server.DeadLetterView
			raw, err := c.get(cmd.Context(), "/v1/deadletters/"+segment(a[0]), &d)
			if err != nil {
				return err
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			c.showDead(d)
			return nil
		},
	}
	c.output.register(cmd)
	return cmd
}

func (c *client) showDead(d server.DeadLetterView) {
	c.fields([][2]string{
		{"id", d.ID}, {"reason", d.Reason}, {"time", clock(d.Time)}, {"saga", d.Key.Saga}, {"key", d.Key.Correlation},
		{"subject", d.Subject}, {"event", inputName(d.Event)}, {"event id", d.Event.ID}, {"stream", inStream(d.Event)}, {"correlation", d.Event.Correlation}, {"trace", d.Event.Trace},
		{"error", d.Error}, {"where", d.Path}, {"expression", d.Source}, {"inputs", d.Inputs}, {"payload", compact(d.Event.Payload)}, {"raw", string(d.Raw)}, {"cut", cutText(d)},
	})
	if d.Event.Redrives > 0 {
		c.fields([][2]string{{"redriven", strconv.Itoa(d.Event.Redrives) + " times, and died again"}})
	}
	if w := d.Work; w != nil {
		c.fields([][2]string{{"work", string(w.Kind) + " " + w.Name}, {"to", w.To}, {"with", compact(w.Payload)}})
	}
	if d.Holds {
		c.fields([][2]string{{"holds", fmt.Sprintf("its key: %d events wait behind it", len(d.Behind))}})
	}
	for i, e := range d.Behind {
		if i == maxBehindShown {
			fmt.Fprintf(c.term.out, "  … and %d more\n", len(d.Behind)-i)
			break
		}
		fmt.Fprintf(c.term.out, "  %d  %s  %s  %s\n", e.N, clock(e.Time), printable(strings.TrimSpace(e.Step+" "+e.Type)), printable(e.ID))
	}
	fmt.Fprintln(c.term.out, "next")
	for _, line := range d.Next {
		fmt.Fprintln(c.term.out, "  "+printable(line))
	}
}

// maxBehindShown bounds the events that are shown behind a dead letter; -o json has all.
const maxBehindShown = 20

func (c *client) fields(lines [][2]string) {
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(c.term.out, "%-11s %s\n", line[0], printable(line[1]))
		}
	}
}

// cutText says that the payload was cut, and where the shown payload comes from.
func cutText(d server.DeadLetterView) string {
	switch {
	case d.Cut == 0:
		return ""
	case d.ReadFrom != "":
		return fmt.Sprintf("%d bytes of payload left out here; shown from %s", d.Cut, d.ReadFrom)
	}
	return fmt.Sprintf("%d bytes of payload left out here; not shown: %s", d.Cut, d.Unread)
}

// shortError returns the error for a list, and whether the payload was cut.
func shortError(d edda.DeadLetter) string {
	if d.Cut == 0 {
		return d.Error
	}
	return fmt.Sprintf("(cut: %d bytes) %s", d.Cut, d.Error)
}

// inStream returns the position of the event in its stream.
func inStream(ev edda.Event) string {
	if ev.Stream == "" {
		return ""
	}
	return fmt.Sprintf("%s #%s", ev.Stream, ev.Number())
}
