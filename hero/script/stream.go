package script

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
)

// maxLine bounds one line of a log, in bytes; a longer line is cut.
const maxLine = 16 << 10

// readSize is the size of one read: the capacity of a pipe.
const readSize = 64 << 10

// stream reads one of a script's two outputs to its end.
type stream struct {
	name  string
	limit int
	mask  mask
	line  func(stream, line string)
	full  func() // called when the output exceeds the limit

	kept      []byte
	truncated bool
	rest      []byte // the beginning of an incomplete line
	skipping  bool   // that line exceeds maxLine
}

// read reads until the last process has closed its end. Past the limit it reads and drops,
// so that the script is not blocked while it is ended.
func (s *stream) read(f *os.File) {
	defer f.Close()
	b := make([]byte, readSize)
	for {
		n, err := f.Read(b)
		if !s.truncated {
			s.take(b[:n])
		}
		if err == nil {
			continue
		}
		s.truncated = s.truncated || !errors.Is(err, io.EOF)
		if len(s.rest) > 0 {
			s.endLine(s.truncated)
		}
		return
	}
}

func (s *stream) take(b []byte) {
	room := s.limit - len(s.kept)
	if full := s.limit > 0 && len(b) > room; full {
		b = b[:room]
		defer func() { s.truncated = true; s.full() }()
	}
	s.kept = append(s.kept, b...)
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		s.extend(line)
		if !ended {
			return
		}
		s.endLine(false)
		b = rest
	}
}

// extend takes more of a line. It keeps more than it shows, so that the mask recognises a
// secret at the edge.
func (s *stream) extend(b []byte) {
	room := maxLine + s.mask.longest - len(s.rest)
	if len(b) > room {
		b, s.skipping = b[:max(0, room)], true
	}
	s.rest = append(s.rest, b...)
}

func (s *stream) endLine(cut bool) {
	line := string(s.rest)
	if cut || s.skipping {
		line = s.mask.cut(line) + "…"
	} else {
		line = s.mask.text(line)
	}
	s.line(s.name, strings.TrimSuffix(line, "\r"))
	s.rest, s.skipping = s.rest[:0], false
}

// text returns the output, masked.
func (s *stream) text() string {
	if s.truncated {
		return s.mask.cut(string(s.kept))
	}
	return s.mask.text(string(s.kept))
}

// last returns the last line that is not blank, bounded.
func (s *stream) last() string {
	text := strings.TrimSpace(s.text())
	line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	if len(line) > maxDetail {
		line = strings.ToValidUTF8(line[:maxDetail], "") + "…"
	}
	return line
}

// maxDetail bounds the line of stderr that goes with a reason, in bytes.
const maxDetail = 500
