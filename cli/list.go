package cli

import (
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"
)

// listing describes a list: the columns of its table, and the id that -o ids prints. id is
// nil for items without ids.
type listing[T any] struct {
	id      func(T) string
	columns []column[T]
}

// column is one column of a list.
type column[T any] struct {
	name string
	of   func(T) string
}

// print writes the items in the format of -o. raw is their JSON as a server sent it; without
// it print encodes the items.
func (l listing[T]) print(t *terminal, o outputFlag, raw []byte, items []T) error {
	switch {
	case o == outputJSON && raw == nil:
		return t.json(items)
	case o == outputJSON:
		return indented(t.out, raw)
	case o == outputIDs && l.id == nil:
		return usagef("-o ids: what is listed has no ids: want table or json")
	case o == outputIDs:
		for _, item := range items {
			fmt.Fprintln(t.out, printable(l.id(item)))
		}
		return nil
	}
	l.table(t.out, items)
	return nil
}

// table writes the items as a table.
func (l listing[T]) table(w io.Writer, items []T) {
	var heading []string
	for _, c := range l.columns {
		heading = append(heading, c.name)
	}
	var lines [][]string
	for _, item := range items {
		var line []string
		for _, c := range l.columns {
			line = append(line, c.of(item))
		}
		lines = append(lines, line)
	}
	rows(w, heading, lines)
}

// paging holds the flags of a command that lists one page at a time.
type paging struct {
	after string
	limit int
}

// maxPage is the largest page of the server.
const maxPage = 1000

// register adds the flags.
func (p *paging) register(cmd *cobra.Command, after string) {
	cmd.Flags().StringVar(&p.after, "after", "", after+": the --after value at the end of the previous page")
	cmd.Flags().IntVar(&p.limit, "limit", 100, "maximum number, up to "+strconv.Itoa(maxPage))
}

// query returns the URL query of the page and of the filters with a value.
func (p paging) query(filters map[string]string) string {
	q := url.Values{"limit": {strconv.Itoa(p.limit)}}
	if p.after != "" {
		q.Set("after", p.after)
	}
	for name, value := range filters {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q.Encode()
}

// more prints how to list the next page. next is empty on the last page.
func (t *terminal) more(what, next string) {
	if next != "" {
		fmt.Fprintf(t.err, "%s: add --after %s\n", what, next)
	}
}

// page checks the page size.
func page(limit int) error {
	if limit < 1 || limit > maxPage {
		return usagef("--limit %d: want 1 to %d", limit, maxPage)
	}
	return nil
}
