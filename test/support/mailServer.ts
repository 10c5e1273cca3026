import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { loopback } from '@tollkeeper/runtime/port'
import { SMTPServer } from 'smtp-server'

export type ReceivedMail = { to: string[]; text: string; id: string; subject: string }

export type MailServer = {
  /** URL in the form of `SMTP_URL`. */
  url: string
  /** The received mails, oldest first. */
  received: ReceivedMail[]
  /** Responds to the next mail with this error instead of accepting it. */
  refuseNext: (error: Error) => void
  close: () => Promise<void>
}

/** Starts a real SMTP server that stores the mails it receives. */
export async function startMailServer(): Promise<MailServer> {
  const received: ReceivedMail[] = []
  let refusal: Error | null = null
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    async onData(stream, session, done) {
      const raw = (await text(stream)).replaceAll('=\r\n', '').replaceAll('=3D', '=')
      const header = (name: string) => new RegExp(`^${name}: (.*)\r$`, 'm').exec(raw)?.[1] ?? ''
      const to = session.envelope.rcptTo.map(({ address }) => address)
      received.push({ to, text: raw, id: header('Message-ID'), subject: header('Subject') })
      done(refusal)
      refusal = null
    },
  })
  await new Promise<void>((resolve) => server.listen(0, loopback, () => resolve()))
  return {
    url: `smtp://${loopback}:${(server.server.address() as AddressInfo).port}`,
    received,
    refuseNext: (error) => {
      refusal = error
    },
    close: () => new Promise<void>((resolve) => server.close(() => resolve())),
  }
}

/** Returns the code in a mail that asks its reader to confirm an address. */
export function codeIn(mail: ReceivedMail | undefined): string {
  return /--code (\S+)\r/.exec(mail?.text ?? '')?.[1] ?? ''
}
