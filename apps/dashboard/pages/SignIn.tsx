import { href } from '../display/routing.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { Form } from '../parts/Form.tsx'
import { useTitle } from '../parts/View.tsx'

type SignInProps = {
  /** The reason why the previous session ended. */
  reason?: string | undefined
  open: (key: string) => Promise<void>
}

const key = {
  name: 'key',
  label: 'API key',
  isSecret: true,
  placeholder: 'tk_…',
  note: 'The key that registration showed once. It is kept only in this tab, until you close it.',
}

export function SignInPage({ reason, open }: SignInProps) {
  useTitle('Sign in')
  const send = async (body: { key?: unknown }) => {
    try {
      await open(typeof body.key === 'string' ? body.key : '')
    } catch (error) {
      if (!(error instanceof GatewayError) || error.status !== 401) throw error
      const message = 'This API key is unknown or revoked'
      throw new GatewayError(0, error.code, message, [{ field: key.name, message }])
    }
  }
  return (
    <div class="sign-in">
      <h1>Sign in</h1>
      <p>Revenue, queue and settlements of your APIs, read from the chain.</p>
      {reason !== undefined && (
        <p class="box busy" role="alert">
          {reason}
        </p>
      )}
      <div class="panel">
        <Form fields={[key]} action="Sign in" send={send} />
      </div>
      {others.map(([question, view, answer]) => (
        <p key={view} class="note">
          {question} <a href={href(view)}>{answer}</a>
        </p>
      ))}
    </div>
  )
}

const others = [
  ['No key yet?', 'start', 'Sell your API.'],
  ['Just looking?', 'network', 'See recent settlements on the network.'],
  ['Want to check a receipt?', 'receipt', 'No key is needed.'],
] as const
