"""The leader's part: certificates are there and young, and the webhook configurations trust them."""

import asyncio
import logging

from cotenant.kube import errors
from cotenant.kube.client import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from cotenant.manager.controller import FIELD_MANAGER, Context
from cotenant.manager.webhook import certificates, registration, settings
from cotenant.manager.webhook.certificates import Material
from cotenant.manager.webhook.credentials import Store

_log = logging.getLogger(__name__)

SOON_SECONDS = 1.0
"""After a round in which something was written or could not be: the next step follows soon."""


class WebhookRegistrar:
    """Makes and renews the certificates, and fills them into the webhook configurations."""

    name = "webhook-registration"

    async def run(self, context: Context) -> None:
        """Keep them so until cancelled."""
        if not context.settings.webhook.listen:
            return
        store = Store(context.client, context.namespace, context.settings.webhook.secret)
        look_seconds = settings.look_seconds(context.settings.webhook)
        while True:
            try:
                settled = await self._round(context, store)
            except errors.KubeError as error:
                settled = False
                _log.warning("webhook: %s", error)
            await asyncio.sleep(look_seconds if settled else min(look_seconds, SOON_SECONDS))

    async def _round(self, context: Context, store: Store) -> bool:
        """Do what there is to do; return whether there was nothing."""
        held = await store.read()
        material = held.material if held is not None else None
        published = True
        if material is not None:
            published = await self._publish(context, material)
        chosen = context.settings.webhook
        renewed = certificates.renewed(
            material,
            settings.names(chosen, context.namespace),
            context.clock.wall(),
            chosen.certificate_seconds,
            published=published,
        )
        if renewed is None:
            return published
        await store.write(renewed, held)
        return False

    async def _publish(self, context: Context, material: Material) -> bool:
        """Have both configurations trust all authorities; return whether they did before."""
        given = context.settings.webhook.register
        found = [
            await (self._register if given else self._trust)(context, resource, kind, material)
            for resource, kind in ((MUTATING_WEBHOOKS, "mutating"), (VALIDATING_WEBHOOKS, "validating"))
        ]
        return all(found)

    async def _trust(self, context: Context, resource: Resource, kind: str, material: Material) -> bool:
        """Fill the authorities into a configuration that somebody else wrote, if there is one."""
        name = context.settings.webhook.configuration
        try:
            configuration = await context.client.get(resource, name, dict)
        except errors.NotFound:
            return True  # nobody asks
        patch = registration.trust_patch(configuration, material.authorities)
        if patch is None:
            return True
        await context.client.patch(resource, name, patch, how="strategic", field_manager=FIELD_MANAGER)
        return False

    async def _register(self, context: Context, resource: Resource, kind: str, material: Material) -> bool:
        """Write a whole configuration, where it is not there or trusts others."""
        wanted = registration.trusted(wanted_configuration(context, kind), material.authorities)
        name = wanted["metadata"]["name"]
        try:
            there = await context.client.get(resource, name, dict)
        except errors.NotFound:
            there = {}
        if registration.covers(there, wanted):
            return True
        await context.client.apply(resource, name, wanted, FIELD_MANAGER, force=True)
        return False


def wanted_configuration(context: Context, kind: str) -> registration.Object:
    """Return a configuration as the leader registers it."""
    chosen = context.settings.webhook
    url = settings.address(chosen)
    configs = {
        path: registration.by_url(url, path)
        if url
        else registration.by_service(chosen.service, context.namespace, path)
        for path in registration.PATHS
    }
    if kind == "mutating":
        return registration.mutating(chosen.configuration, context.namespace, configs)
    where = context.settings.slo_config.namespace
    return registration.validating(chosen.configuration, context.namespace, configs, where)
