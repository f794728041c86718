package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda/server"
)

// waitingList lists keys with held or parked events.
func (c *client) waitingList(what, short string) *cobra.Command {
	var saga string
	var p paging
	cmd := &cobra.Command{
		Use: what, Short: short, Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(p.limit); err != nil {
				return err
			}
			var found server.WaitingList
			raw, err := c.get(cmd.Context(), "/v1/"+what+"?"+p.query(map[string]string{"saga": saga}), &found)
			if err != nil {
				return err
			}
			defer c.term.more("more", found.Next)
			return waitingKeys().print(c.term, c.output, raw, found.Keys)
		},
	}
	cmd.Flags().StringVar(&saga, "saga", "", "only this saga")
	offerBy(cmd, "saga", c.completeSagas)
	p.register(cmd, "next page")
	c.output.register(cmd)
	return cmd
}

func waitingKeys() listing[server.WaitingKey] {
	return listing[server.WaitingKey]{
		id: func(k server.WaitingKey) string { return k.Saga + " " + k.Key },
		columns: []column[server.WaitingKey]{
			{"saga", func(k server.WaitingKey) string { return k.Saga }},
			{"key", func(k server.WaitingKey) string { return k.Key }},
			{"events", func(k server.WaitingKey) string { return strconv.Itoa(k.Events) }},
			{"first", func(k server.WaitingKey) string { return strings.TrimSpace(k.First.Step + " " + k.First.Type) }},
			{"time", func(k server.WaitingKey) string { return ago(k.First.Time) }},
			{"waits for", func(k server.WaitingKey) string { return k.Waits }},
			{"error", func(k server.WaitingKey) string { return k.Error }},
		},
	}
}
