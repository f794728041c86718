package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"edda"
	"edda/server"
)

func (t *terminal) deadLetterCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "deadletter", Aliases: []string{"dl"}, Short: "Look at events that could not be applied",
		Args: noun, RunE: help,
	}
	c.register(noun)
	noun.AddCommand(c.deadLetterList(), c.deadLetterDescribe())
	return noun
}

func (c *client) deadLetterList() *cobra.Command {
	var after string
	var limit int
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List dead letters, oldest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(limit); err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if after != "" {
				q.Set("after", after)
			}
			var list server.DeadLetterList
			raw, err := c.get(cmd.Context(), "/v1/deadletters?"+q.Encode(), &list)
			if err != nil {
				return err
			}
			return c.printDead(raw, list)
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "next page: what --after said at the end of the page before")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, up to 1000")
	c.output.register(cmd)
	return cmd
}

func (c *client) printDead(raw []byte, list server.DeadLetterList) error {
	if c.output == outputJSON {
		return indented(c.term.out, raw)
	}
	var lines [][]string
	for _, d := range list.DeadLetters {
		if c.output == outputIDs {
			fmt.Fprintln(c.term.out, printable(d.ID))
			continue
		}
		lines = append(lines, []string{d.ID, d.Reason, d.Key.Saga, d.Key.Correlation, inputName(d.Event), ago(d.Time), d.Error})
	}
	if c.output == outputTable {
		rows(c.term.out, []string{"id", "reason", "saga", "key", "event", "time", "error"}, lines)
	}
	if list.Next != "" {
		fmt.Fprintf(c.term.err, "more: add --after %s\n", list.Next)
	}
	return nil
}

func (c *client) deadLetterDescribe() *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe ID", Aliases: []string{"get", "info"}, Short: "Everything about one dead letter", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			var d edda.DeadLetter
			raw, err := c.get(cmd.Context(), "/v1/deadletters/"+segment(a[0]), &d)
			if err != nil {
				return err
			}
			if c.output == outputJSON {
				return indented(c.term.out, raw)
			}
			c.describeDead(d)
			return nil
		},
	}
	c.output.register(cmd)
	return cmd
}

func (c *client) describeDead(d edda.DeadLetter) {
	for _, line := range [][2]string{
		{"id", d.ID}, {"reason", d.Reason}, {"time", clock(d.Time)}, {"saga", d.Key.Saga}, {"key", d.Key.Correlation},
		{"subject", d.Subject}, {"event", inputName(d.Event)}, {"event id", d.Event.ID}, {"error", d.Error},
		{"where", d.Path}, {"expression", d.Source}, {"inputs", d.Inputs}, {"payload", compact(d.Event.Payload)}, {"raw", string(d.Raw)},
	} {
		if line[1] != "" {
			fmt.Fprintf(c.term.out, "%-11s %s\n", line[0], printable(line[1]))
		}
	}
}
