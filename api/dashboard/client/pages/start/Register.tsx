import { useMemo } from 'preact/hooks'
import type { Home, ProviderWithKey } from '../../answers.ts'
import { createGateway } from '../../gateway.ts'
import { Form, TextField } from '../../parts/Form.tsx'
import { Empty, View } from '../../parts/View.tsx'
import { href } from '../../routing.ts'
import { useForm } from '../../useForm.ts'
import { usePolled } from '../../usePolled.ts'

export function Register({ done }: { done: (registered: ProviderWithKey) => void }) {
  const gateway = useMemo(() => createGateway(), [])
  const polled = usePolled((signal) => gateway.get<Home>('', signal), 'home')
  return (
    <View title="Sell your API" polled={polled}>
      {({ registration }) =>
        registration === 'closed' ? (
          <Empty title="Registration is closed here">
            <p>
              The operator of this gateway registers providers. With an API key, <a href={href()}>sign in</a>.
            </p>
          </Empty>
        ) : (
          <section class="panel register">
            <RegisterForm needsToken={registration === 'token'} done={done} />
          </section>
        )
      }
    </View>
  )
}

function RegisterForm(props: { needsToken: boolean; done: (registered: ProviderWithKey) => void }) {
  const { needsToken, done } = props
  const form = useForm({ name: '', contact: '', token: '' }, async ({ name, contact, token }) => {
    const body = { name: name.trim(), ...(contact.trim() !== '' && { contact: contact.trim() }) }
    const headers = needsToken ? { 'registration-token': token.trim() } : {}
    done(await createGateway().post<ProviderWithKey>('providers', body, headers))
  })
  return (
    <Form form={form} action="Register">
      <TextField
        label="Name"
        field={form.field('name')}
        placeholder="Weather, Inc."
        note="As shown to buyers."
      />
      <TextField
        label="Contact"
        field={form.field('contact')}
        placeholder="ops@weather.example"
        note="Where the operator reaches you. May be empty."
      />
      {needsToken && (
        <TextField
          label="Registration token"
          field={form.field('token')}
          note="From the operator of this gateway, who decides who may register."
        />
      )}
    </Form>
  )
}
