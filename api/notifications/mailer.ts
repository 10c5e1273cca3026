import { createTransport } from 'nodemailer'
import type { MailSettings } from '../http/settings.ts'

export type Mail = {
  /** An address that `isMailAddress` accepts. */
  to: string
  subject: string
  text: string
  /** Identifies the mail: if it is sent twice, mail programs that compare ids show it once. */
  id: string
}

export type Mailer = { send(mail: Mail): Promise<void> }

const timeoutMs = 10_000
const loopback = /^(localhost|127\.0\.0\.1|\[::1\])$/

/** Creates a mailer that uses an SMTP server, with a connection per mail. A password is sent only under TLS, or to this machine. */
export function createMailer({ url, from }: MailSettings): Mailer {
  const { username, hostname } = new URL(url)
  const transport = createTransport({
    url,
    connectionTimeout: timeoutMs,
    greetingTimeout: timeoutMs,
    socketTimeout: timeoutMs,
    requireTLS: username !== '' && !loopback.test(hostname),
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  const domain = from.slice(from.indexOf('@') + 1)
  return {
    async send({ to, subject, text, id }) {
      await transport.sendMail({
        from: { name: 'Tollkeeper', address: from },
        to: { name: '', address: to },
        subject,
        text,
        messageId: `<${id}@${domain}>`,
        // RFC 3834: prevents vacation notices as a reply.
        headers: { 'Auto-Submitted': 'auto-generated' },
      })
    },
  }
}
