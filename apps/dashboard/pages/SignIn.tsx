import { href } from '../display/routing.ts'
import { GatewayError } from '../gateway/gateway.ts'
import { Form } from '../parts/Form.tsx'
import { useTitle } from '../parts/View.tsx'

type SignInProps = {
  /** Why the previous session ended. */
  reason?: string | undefined
  open: (key: string) => Promise<void>
}

const key = {
  name: 'key',
  label: 'API key',
  isSecret: true,
  placeholder: 'tk_…',
  note: 'The key that registration showed once. It stays in this tab and is gone with it.',
}

export function SignInPage({ reason, open }: SignInProps) {
  useTitle('Sign in')
  const send = async (body: { key?: unknown }) => {
    try {
      await open(typeof body.key === 'string' ? body.key : '')
    } catch (error) {
      if (!(error instanceof GatewayError) || error.status !== 401) throw error
      const message = 'This API key is not in force'
      throw new GatewayError(0, error.code, message, [{ field: key.name, message }])
    }
  }
  return (
    <div class="sign-in">
      <h1>Sign in</h1>
      <p>Revenue, queue and settlements of your APIs, as the chain shows them.</p>
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
  ['Curious first?', 'network', 'See what settles on the network.'],
  ['Only want to know whether a receipt is genuine?', 'receipt', 'Check it without a key.'],
] as const
