package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"edda/internal/jsonvalue"
	"edda/manifests"
	"edda/server"
	"edda/store"
)

func (t *terminal) auditCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "audit", Short: "Show the commands of operators, with their reasons",
		Args: noun, RunE: help,
	}
	c.register(noun)
	noun.AddCommand(c.auditList())
	return noun
}

func (c *client) auditList() *cobra.Command {
	var since string
	var p paging
	var process bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the commands of operators, newest first", Args: args(cobra.NoArgs),
		Example: "  edda audit list --since 24h\n  edda audit list --since 2026-05-01T00:00:00Z -o json\n  edda audit list --process",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(p.limit); err != nil {
				return err
			}
			filters := map[string]string{}
			if since != "" {
				from, err := sinceFlag(since)
				if err != nil {
					return err
				}
				filters["since"] = from.UTC().Format(time.RFC3339Nano)
			}
			if process {
				filters["process"] = "true"
			}
			found, err := c.audits(cmd.Context(), p, filters)
			if err != nil {
				return err
			}
			raw, err := jsonvalue.Encode(found)
			if err != nil {
				return fmt.Errorf("write the list: %w", err)
			}
			defer c.term.more("more", found.Next)
			return audits().print(c.term, c.output, raw, found.Audits)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only entries of the last 24h or 7d, or since a time (RFC 3339)")
	cmd.Flags().BoolVar(&process, "process", false, "commands that concern all tenants, such as reload, drain, gc, backup, compact, an accepted loss of a stream, and those of a cluster")
	p.register(cmd, "next page")
	c.output.register(cmd)
	return cmd
}

// audits gathers up to limit acts. One answer passes over so many acts of other
// tenants and no more: it may be short, or empty, and tell where to go on.
func (c *client) audits(ctx context.Context, p paging, filters map[string]string) (all server.AuditList, err error) {
	all.Audits = []store.Audit{}
	for left := p.limit; left > 0; left = p.limit - len(all.Audits) {
		var found server.AuditList
		if _, err := c.get(ctx, "/v1/audit?"+paging{p.after, left}.query(filters), &found); err != nil {
			return all, err
		}
		all.Audits, all.More, all.Next = append(all.Audits, found.Audits...), found.More, found.Next
		if p.after = found.Next; p.after == "" {
			break
		}
	}
	return all, nil
}

// sinceFlag is a time, or how long ago it was.
func sinceFlag(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	d, err := manifests.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, usagef("--since %s: want a duration such as 24h or 7d, or a time such as 2026-05-01T00:00:00Z", text)
	}
	return time.Now().Add(-d), nil
}

func audits() listing[store.Audit] {
	return listing[store.Audit]{
		columns: []column[store.Audit]{
			{"time", func(a store.Audit) string { return clock(a.Time) }},
			{"by", func(a store.Audit) string { return a.By }},
			{"verb", func(a store.Audit) string { return a.Verb }},
			{"saga", func(a store.Audit) string { return a.Key.Saga }},
			{"key", func(a store.Audit) string { return a.Key.Correlation }},
			{"what", func(a store.Audit) string { return a.Detail }},
			{"why", func(a store.Audit) string { return a.Reason }},
		},
	}
}
