package main

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"edda/server"
)

// waitingList lists keys whose events are held or parked.
func (c *client) waitingList(what, short string) *cobra.Command {
	var saga, after string
	var limit int
	cmd := &cobra.Command{
		Use: what, Short: short, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(limit); err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}, "saga": {saga}, "after": {after}}
			var list server.WaitingList
			raw, err := c.get(cmd.Context(), "/v1/"+what+"?"+q.Encode(), &list)
			if err != nil {
				return err
			}
			return c.printWaiting(raw, list)
		},
	}
	cmd.Flags().StringVar(&saga, "saga", "", "only this saga")
	offerBy(cmd, "saga", c.completeSagas)
	cmd.Flags().StringVar(&after, "after", "", "next page: what --after said at the end of the page before")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, up to 1000")
	c.output.register(cmd)
	return cmd
}

func (c *client) printWaiting(raw []byte, list server.WaitingList) error {
	if c.output == outputJSON {
		return indented(c.term.out, raw)
	}
	var lines [][]string
	for _, k := range list.Keys {
		if c.output == outputIDs {
			fmt.Fprintln(c.term.out, printable(k.Saga+" "+k.Key))
			continue
		}
		name := k.First.Type
		if k.First.Step != "" {
			name = k.First.Step + " " + name
		}
		lines = append(lines, []string{k.Saga, k.Key, strconv.Itoa(k.Events), name, ago(k.First.Time), k.Waits, k.Error})
	}
	if c.output == outputTable {
		rows(c.term.out, []string{"saga", "key", "events", "first", "time", "waits for", "error"}, lines)
	}
	if list.Next != "" {
		fmt.Fprintf(c.term.err, "more: add --after %s\n", list.Next)
	}
	return nil
}
