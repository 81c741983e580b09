//! Where a node listens, and what it serves there.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::http::HeaderValue;
use axum::middleware::map_response;
use axum::response::Response;
use capstan_keys::api::EPOCH_HEADER;
use capstan_service::enrolment::{Registrar, enrolment_routes, renewal_routes};
use capstan_service::health::health_routes;
use capstan_service::identity::{Gate, PresentedCertificate, enrolment_tls, member_tls, member_tls_from};
use capstan_service::listener::{ListenerLimits, serve_enrolment, serve_members};
use capstan_service::metrics::serve_metrics;
use capstan_service::shutdown::Shutdown;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;

use super::{KmaSettings, Service, kmip, routes};

/// The ports of a node, open from before anybody is told that it is ready.
pub(super) struct Listeners {
    members: TcpListener,
    enrolment: Option<TcpListener>,
    kmip: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

/// What the listeners show, and whom they know.
pub(super) struct Shown {
    pub(super) presented: Arc<PresentedCertificate>,
    /// The certificate of the cluster's authority.
    pub(super) authority: CertificateDer<'static>,
    pub(super) registrar: Arc<dyn Registrar>,
}

impl Listeners {
    /// Opens those that the settings name.
    pub(super) fn open(settings: &KmaSettings) -> anyhow::Result<Self> {
        let optional = |address: &Option<String>| address.as_deref().map(listen).transpose();
        Ok(Self {
            members: listen(&settings.listen)?,
            enrolment: optional(&settings.enrol_listen)?,
            kmip: optional(&settings.kmip_listen)?,
            metrics: optional(&settings.metrics_listen)?,
        })
    }

    /// Serves until the end begins.
    pub(super) async fn serve(self, service: Arc<Service>, shown: Shown, shutdown: Shutdown) -> anyhow::Result<()> {
        let Shown { presented, authority, registrar } = shown;
        let (settings, metrics) = (&service.settings, &service.metrics);
        let clock = service.clock.clone();
        let gate = Gate::new(settings.cluster, service.clone(), clock.clone());

        let tls = member_tls(presented.clone(), authority.clone(), clock.clone())?;
        let (routes, counts) = (member_routes(&service, registrar.clone()), metrics.connections.of("members"));
        let limits = ListenerLimits::default();
        let members = serve_members(self.members, tls, gate.clone(), routes, limits, counts, shutdown.clone());

        let tls = enrolment_tls(presented.clone())?;
        let routes = metrics.requests.count(enrolment_routes(registrar));
        let enrolment = async {
            let Some(listener) = self.enrolment else { return std::future::pending().await };
            let counts = metrics.connections.of("strangers");
            serve_enrolment(listener, tls, routes, ListenerLimits::enrolment(), counts, shutdown.clone()).await;
        };

        let tls = member_tls_from(presented, authority, clock, settings.kmip_tls_oldest)?;
        let kmip = async {
            let Some(listener) = self.kmip else { return std::future::pending().await };
            kmip::serve(service.clone(), listener, tls, gate.clone(), shutdown.clone()).await;
        };

        let metrics = async {
            let Some(listener) = self.metrics else { return std::future::pending().await };
            serve_metrics(service.clone(), listener, shutdown.clone()).await;
        };
        tokio::select! {
            () = members => {}
            () = enrolment => {}
            () = kmip => {}
            () = metrics => {}
        }
        Ok(())
    }
}

fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let refused = || format!("cannot listen at {address}: name another address in keyd.toml");
    let address: SocketAddr = address.parse().with_context(refused)?;
    capstan_service::listener::listen(address).with_context(refused)
}

/// What members are served, counted, each answer with the cluster's epoch: an agent that has heard of a newer one takes
/// nothing from this node.
fn member_routes(service: &Arc<Service>, registrar: Arc<dyn Registrar>) -> Router {
    let routes = routes::routes()
        .served_by(service.clone())
        .merge(renewal_routes(registrar))
        .merge(health_routes(service.clone()));
    let epoch = HeaderValue::from(service.settings.epoch);
    service.metrics.requests.count(routes).layer(map_response(move |mut answer: Response| {
        answer.headers_mut().insert(EPOCH_HEADER, epoch.clone());
        std::future::ready(answer)
    }))
}
