package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxCall bounds the body of one call, in bytes.
const maxCall = 64 << 10

// Effects is the effect server. It answers calls and keeps a book of them.
type Effects struct {
	lose int

	mu    sync.Mutex // guards calls and books
	calls int
	books map[string]Book
}

// Book holds the calls of one phase, by effect.
type Book map[string]*Entry

// Entry counts one effect's calls. Calls and Keys are equal where no key was called
// twice.
type Entry struct {
	Calls int `json:"calls"`
	Keys  int `json:"keys"` // different orders

	seen map[string]struct{}
}

// ServeEffects answers at an address until ctx ends. Where lose is above 0,
// every lose-th call is answered and not written down.
func ServeEffects(ctx context.Context, addr string, lose int) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("the effect server: %w", err)
	}
	e := &Effects{lose: lose, books: map[string]Book{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /effects/{name}", e.effect)
	mux.HandleFunc("GET /books/{phase}", e.book)
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("the effect server: %w", err)
	}
	return nil
}

// effect answers a call and writes it into the book of its phase. The phase is the
// order's id up to its last hyphen.
func (e *Effects) effect(w http.ResponseWriter, r *http.Request) {
	var call struct {
		Order   string `json:"order"`
		Decline bool   `json:"decline"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxCall))
	if err == nil {
		err = json.Unmarshal(body, &call)
	}
	if err != nil || call.Order == "" {
		http.Error(w, `want {"order": …}`, http.StatusBadRequest)
		return
	}
	e.write(r.PathValue("name"), call.Order)
	w.Header().Set("Content-Type", "application/json")
	if call.Decline {
		w.WriteHeader(http.StatusConflict)
	}
	_, _ = io.WriteString(w, `{"ok":true}`)
}

func (e *Effects) write(name, order string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.calls++; e.lose > 0 && e.calls%e.lose == 0 {
		return
	}
	phase := phaseOf(order)
	if e.books[phase] == nil {
		e.books[phase] = Book{}
	}
	entry := e.books[phase][name]
	if entry == nil {
		entry = &Entry{seen: map[string]struct{}{}}
		e.books[phase][name] = entry
	}
	entry.Calls++
	entry.seen[order] = struct{}{}
	entry.Keys = len(entry.seen)
}

func phaseOf(order string) string { return order[:max(strings.LastIndexByte(order, '-'), 0)] }

func (e *Effects) book(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	book := e.books[r.PathValue("phase")]
	if book == nil {
		book = Book{}
	}
	_ = json.NewEncoder(w).Encode(book) // a client that has gone reads nothing
}

// agrees returns an error unless each of the effects was called once for each of n
// orders, and no other effect was called.
func (b Book) agrees(n int, effects ...string) error {
	var errs []error
	for _, name := range effects {
		got := b[name]
		if got == nil {
			got = &Entry{}
		}
		if got.Calls != n || got.Keys != n {
			errs = append(errs, fmt.Errorf("effect %s was called %d times for %d orders, want once for each of %d", name, got.Calls, got.Keys, n))
		}
	}
	for name, got := range b {
		if !slices.Contains(effects, name) {
			errs = append(errs, fmt.Errorf("effect %s was called %d times, want never", name, got.Calls))
		}
	}
	return errors.Join(errs...)
}
