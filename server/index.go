package server

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

//go:embed index.html
var indexHTML string

// indexLink is one address that the server answers.
type indexLink struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// indexPage is what the server says of itself at /.
type indexPage struct {
	Name     string       `json:"name"`
	Version  string       `json:"version"`
	Links    []indexLink  `json:"links"`
	Commands []string     `json:"commands"`
	Style    template.CSS `json:"-"`
}

// index serves the first page: HTML for a browser, JSON for other clients. Like the
// documentation, it has no script and loads nothing.
func (s *Server) index() error {
	page := indexPage{
		Name: "edda", Version: s.options.Build.Version, Style: template.CSS(docsCSS), // our own
		Links: []indexLink{
			{"/docs", "every route of the API, with a curl line"},
			{"/openapi.json", "the same for programs"},
			{"/v1/instances", "the instances of the tenant in the header x-tenant-id"},
			{"/info", "what runs here: sagas, effects, streams"},
			{"/health", "what works and what does not"},
			{"/metrics", "for Prometheus"},
		},
		Commands: []string{"edda ls                          # the instances", "edda instance describe SAGA KEY  # one of them: its state, steps, timers and history",
			"edda deadletter list             # events that could not be applied", "edda --help"},
	}
	t, err := template.New("index").Parse(indexHTML)
	if err != nil {
		return fmt.Errorf("write the first page: %w", err)
	}
	var html bytes.Buffer
	if err := t.Execute(&html, page); err != nil {
		return fmt.Errorf("write the first page: %w", err)
	}
	s.routes.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			answer(w, http.StatusOK, page)
			return
		}
		ownPage(w.Header())
		_, _ = w.Write(html.Bytes()) // an error here means that the client has disconnected
	})
	return nil
}
