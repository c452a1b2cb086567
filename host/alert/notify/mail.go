package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"mime"
	"mime/quotedprintable"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"time"

	"github.com/wasmjob/wasmjob/host/alert"
	"github.com/wasmjob/wasmjob/internal/tlsconfig"
)

// implicitTLS is the port on which TLS comes first.
const implicitTLS = "465"

// mail sends an e-mail: with TLS, unless the receiver says that there is none.
func (s *Sender) mail(ctx context.Context, r alert.Receiver, m *alert.Message) error {
	password, err := secret(r.SecretFile)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(r.Server)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Server)
	if err != nil {
		return err
	}
	defer conn.Close() // after Quit there is nothing to lose
	if deadline, limited := ctx.Deadline(); limited {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	settings := tlsconfig.New()
	settings.ServerName = host
	if port == implicitTLS && !r.Plain {
		conn = tls.Client(conn, settings)
	}
	c, err := smtp.NewClient(conn, host)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Server, err)
	}
	if port != implicitTLS && !r.Plain {
		if can, _ := c.Extension("STARTTLS"); !can {
			return fmt.Errorf("%s offers no TLS (STARTTLS): expected it, or plain: true for a server that has none", r.Server)
		}
		if err := c.StartTLS(settings); err != nil {
			return fmt.Errorf("%s: TLS: %w", r.Server, err)
		}
	}
	if r.User != "" {
		if err := c.Auth(smtp.PlainAuth("", r.User, password, host)); err != nil {
			return fmt.Errorf("%s does not take the user and the password: %w", r.Server, err)
		}
	}
	if err := deliver(c, r, letter(r, m, s.now())); err != nil {
		return fmt.Errorf("%s: %w", r.Server, err)
	}
	return nil
}

// deliver sends a letter. The server's refusal of one recipient does not affect the others; the error is then
// an [alert.PartlyError].
func deliver(c *smtp.Client, r alert.Receiver, letter []byte) error {
	if err := c.Mail(r.From); err != nil {
		return err
	}
	var refused []error
	for _, to := range r.To {
		err := c.Rcpt(to)
		if _, answered := errors.AsType[*textproto.Error](err); err != nil && !answered {
			return err // there is no talking to the server
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("%s: %w", to, err))
		}
	}
	if len(refused) == len(r.To) {
		return errors.Join(refused...)
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(letter); err != nil {
		return errors.Join(err, w.Close())
	}
	if err := w.Close(); err != nil {
		return err
	}
	_ = c.Quit() // the letter has been taken
	if len(refused) > 0 {
		return &alert.PartlyError{Err: errors.Join(refused...)}
	}
	return nil
}

// letter is the message as an e-mail.
func letter(r alert.Receiver, m *alert.Message, now time.Time) []byte {
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	field("From", r.From)
	field("To", strings.Join(r.To, ", "))
	field("Subject", mime.QEncoding.Encode("utf-8", m.Title()))
	field("Date", now.Format(time.RFC1123Z))
	field("Auto-Submitted", "auto-generated")
	field("MIME-Version", "1.0")
	field("Content-Type", "text/plain; charset=utf-8")
	field("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(strings.ReplaceAll(m.Text(mostEmail), "\n", "\r\n"))) // into memory
	_ = w.Close()
	return b.Bytes()
}
