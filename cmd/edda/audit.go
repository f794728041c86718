package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
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
		Use: "audit", Short: "Look at what operators did, and why",
		Args: noun, RunE: help,
	}
	c.register(noun)
	noun.AddCommand(c.auditList())
	return noun
}

func (c *client) auditList() *cobra.Command {
	var since, after string
	var limit int
	var process bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List operators' acts, newest first", Args: args(cobra.NoArgs),
		Example: "  edda audit list --since 24h\n  edda audit list --since 2026-05-01T00:00:00Z -o json\n  edda audit list --process",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := page(limit); err != nil {
				return err
			}
			q := url.Values{"limit": {strconv.Itoa(limit)}}
			if since != "" {
				from, err := sinceFlag(since)
				if err != nil {
					return err
				}
				q.Set("since", from.UTC().Format(time.RFC3339Nano))
			}
			if process {
				q.Set("process", "true")
			}
			if after != "" {
				q.Set("after", after)
			}
			list, err := c.audits(cmd.Context(), q, limit)
			if err != nil {
				return err
			}
			return c.printAudits(list)
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "only acts of this long (24h, 7d), or since a time (RFC 3339)")
	cmd.Flags().BoolVar(&process, "process", false, "acts on the whole process, of no tenant: gc, backup, doctor, compact, an accepted loss of a stream")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many, up to 1000")
	cmd.Flags().StringVar(&after, "after", "", "next page: what --after said at the end of the page before")
	c.output.register(cmd)
	return cmd
}

// audits gathers up to limit acts. One answer passes over so many acts of other
// tenants and no more: it may be short, or empty, and tell where to go on.
func (c *client) audits(ctx context.Context, q url.Values, limit int) (all server.AuditList, err error) {
	all.Audits = []store.Audit{}
	for {
		q.Set("limit", strconv.Itoa(limit-len(all.Audits)))
		var list server.AuditList
		if _, err := c.get(ctx, "/v1/audit?"+q.Encode(), &list); err != nil {
			return all, err
		}
		all.Audits, all.More, all.Next = append(all.Audits, list.Audits...), list.More, list.Next
		if list.Next == "" || len(all.Audits) >= limit {
			return all, nil
		}
		q.Set("after", list.Next)
	}
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

func (c *client) printAudits(list server.AuditList) error {
	if c.output == outputJSON {
		raw, err := jsonvalue.Encode(list)
		if err != nil {
			return fmt.Errorf("write the list: %w", err)
		}
		return indented(c.term.out, raw)
	}
	var lines [][]string
	for _, a := range list.Audits {
		lines = append(lines, []string{clock(a.Time), a.By, a.Verb, a.Key.Saga, a.Key.Correlation, a.Detail, a.Reason})
	}
	rows(c.term.out, []string{"time", "by", "verb", "saga", "key", "what", "why"}, lines)
	if list.Next != "" {
		fmt.Fprintf(c.term.err, "more: add --after %s\n", list.Next)
	}
	return nil
}
