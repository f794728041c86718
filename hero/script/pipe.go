package script

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// pipes are a script's three streams, [0] to read from and [1] to write to.
type pipes struct {
	stdin, stdout, stderr [2]*os.File
}

func newPipes() (*pipes, error) {
	p := &pipes{}
	for _, ends := range []*[2]*os.File{&p.stdin, &p.stdout, &p.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closeAll()
			return nil, err
		}
		*ends = [2]*os.File{r, w}
	}
	return p, nil
}

func (p *pipes) closeChild() { closeFiles(p.stdin[0], p.stdout[1], p.stderr[1]) }
func (p *pipes) closeOurs()  { closeFiles(p.stdin[1], p.stdout[0], p.stderr[0]) }
func (p *pipes) closeAll()   { p.closeChild(); p.closeOurs() }

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // nothing was written
		}
	}
}

// readers are the three that serve a script's streams.
type readers struct {
	pipes *pipes
	all   sync.WaitGroup
}

// serve gives the script to its interpreter and reads what it writes.
func (p *pipes) serve(r *run) *readers {
	rs := &readers{pipes: p}
	rs.all.Go(func() {
		// An interpreter that does not read all of it has said what it wants to.
		_, _ = io.WriteString(p.stdin[1], r.script.Source)
		_ = p.stdin[1].Close()
	})
	rs.all.Go(func() { r.stdout.read(p.stdout[0]) })
	rs.all.Go(func() { r.stderr.read(p.stderr[0]) })
	return rs
}

// drainWithin is how long pipes are read after the last process of a run has
// ended: what they hold is there already.
const drainWithin = 2 * time.Second

// finish waits for the readers. A pipe that a process outside the run holds open
// (it was handed over a socket) is left.
func (rs *readers) finish() {
	until := time.Now().Add(drainWithin)
	_ = errors.Join(rs.pipes.stdin[1].SetDeadline(time.Now()), rs.pipes.stdout[0].SetDeadline(until), rs.pipes.stderr[0].SetDeadline(until))
	rs.all.Wait()
}
