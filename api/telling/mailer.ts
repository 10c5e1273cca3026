import { createTransport } from 'nodemailer'
import type { MailSettings } from '../http/settings.ts'

export type Mail = {
  /** Of a form that `isMailAddress` takes. */
  to: string
  subject: string
  text: string
  /** Identifies the mail: if it is sent twice, a mail program that looks at ids shows one. */
  id: string
}

export type Mailer = { send(mail: Mail): Promise<void> }

const timeoutMs = 10_000
const loopback = /^(localhost|127\.0\.0\.1|\[::1\])$/

/** Sends through an SMTP server, with a connection for each mail. A password travels only under TLS, or on this machine. */
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
        // RFC 3834: no vacation notice in answer.
        headers: { 'Auto-Submitted': 'auto-generated' },
      })
    },
  }
}
