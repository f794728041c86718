package smtpeffect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"regexp"
	"slices"
	"strings"

	gomail "github.com/wneessen/go-mail"
)

// maxFileName bounds a file's name, as file systems do.
const maxFileName = 255

// file is an attachment, or a picture that html refers to by cid.
type file struct {
	name, kind, cid string
	content         string
}

func fileFields() []string { return []string{"name", "type", "content", "base64", "cid"} }

// files reads a list of {name, type, content | base64, cid}.
func files(v any) ([]file, error) {
	list, isList := v.([]any)
	if !isList && v != nil {
		return nil, errors.New("attachments is a list")
	}
	if len(list) > maxFiles {
		return nil, fmt.Errorf("attachments has %d files, more than %d", len(list), maxFiles)
	}
	out := make([]file, len(list))
	for i, item := range list {
		f, err := fileOf(item)
		if err != nil {
			return nil, fmt.Errorf("attachments[%d]: %w", i, err)
		}
		out[i] = f
	}
	return out, nil
}

func fileOf(v any) (f file, err error) {
	given, isMap := v.(map[string]any)
	if !isMap {
		return f, errors.New("a file is a map of " + strings.Join(fileFields(), ", "))
	}
	for name, v := range given {
		if _, isText := v.(string); !slices.Contains(fileFields(), name) || !isText && v != nil {
			return f, errors.New("a file has the fields " + strings.Join(fileFields(), ", ") + ", each a text")
		}
	}
	text := func(name string) string { s, _ := given[name].(string); return s }
	f = file{name: text("name"), kind: text("type"), cid: text("cid")}
	if f.content, err = contentOf(given); err != nil {
		return f, err
	}
	return f.checked()
}

func contentOf(given map[string]any) (string, error) {
	content, asText := given["content"].(string)
	coded, asCode := given["base64"].(string)
	if asText == asCode {
		return "", errors.New("a file has either content, a text, or base64")
	}
	if asText {
		return content, nil
	}
	raw, err := base64.StdEncoding.DecodeString(coded)
	if err != nil {
		return "", errors.New("base64 is none") // the library's error says where, which helps nobody
	}
	return string(raw), nil
}

// contentID is the form of a cid in html: <img src="cid:logo">.
var contentID = regexp.MustCompile(`^[A-Za-z0-9_-]+([.@][A-Za-z0-9_-]+)*$`)

func (f file) checked() (file, error) {
	switch {
	case f.name == "" || len(f.name) > maxFileName || !clean(f.name) || strings.ContainsAny(f.name, "/\\\t"):
		return f, errors.New("name is a file's name, without a path or control characters")
	case f.cid != "" && (len(f.cid) > maxFileName || !contentID.MatchString(f.cid)):
		return f, errors.New("cid is a word such as logo")
	case f.kind == "":
		f.kind = "application/octet-stream"
	}
	kind, _, err := mime.ParseMediaType(f.kind)
	if err != nil || !clean(f.kind) || !strings.Contains(kind, "/") || strings.HasPrefix(kind, "multipart/") || strings.HasPrefix(kind, "message/") {
		return f, errors.New("type is the media type of a file, such as application/pdf")
	}
	return f, nil
}

// attach adds the file to the mail. It sets the headers itself, because the library changes some
// names.
func (f file) attach(m *gomail.Msg) error {
	kind, params, err := mime.ParseMediaType(f.kind)
	if err != nil {
		return fmt.Errorf("type of a file: %w", err)
	}
	disposition, add := "attachment", m.AttachReader
	if f.cid != "" {
		disposition, add = "inline", m.EmbedReader
	}
	return add(f.name, strings.NewReader(f.content), func(to *gomail.File) {
		to.Header.Set("Content-Type", mime.FormatMediaType(kind, params))
		to.Header.Set("Content-Disposition", mime.FormatMediaType(disposition, map[string]string{"filename": f.name}))
		if f.cid != "" {
			to.Header.Set("Content-ID", "<"+f.cid+">")
		}
	})
}
